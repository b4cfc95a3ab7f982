"""The physical floor: by hand for known hardware, never higher on better hardware or for less work."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkb.roofline.floor import GPUS, Peaks, floor_us, peaks_of
from pkb.types.cost import Cost

NOTHING = Cost(flops=0, hbm_bytes=0, link_sent_bytes=0, link_received_bytes=0, phases=0)
MIB = 2**20


def floor(
    cost: Cost, *, hardware: str = "NVIDIA H100 80GB HBM3", dtype: str = "bf16", ranks: int = 4, **more: bool
) -> float:
    found = floor_us(cost, hardware=hardware, dtype=dtype, world_size=ranks, shared_gpu=more.get("shared", False))
    assert found is not None
    return found


def test_compute_by_hand() -> None:
    assert floor(replace(NOTHING, flops=989e12)) == pytest.approx(1e6)  # a second's worth
    assert floor(replace(NOTHING, flops=989e6), dtype="fp32") == pytest.approx(2.0)  # TF32: half of bf16
    assert floor(replace(NOTHING, flops=67e6), dtype="fp64") == pytest.approx(1.0)


def test_memory_by_hand() -> None:
    """3.35 TB/s; what fits into 50 MiB of L2 may never leave it."""
    assert floor(replace(NOTHING, hbm_bytes=50 * MIB)) == 0
    assert floor(replace(NOTHING, hbm_bytes=50 * MIB + 3.35e6)) == pytest.approx(1.0)


def test_link_by_hand() -> None:
    """450 GB/s in one direction."""
    assert floor(replace(NOTHING, link_sent_bytes=450e3, link_received_bytes=450e3)) == pytest.approx(1.0)


def test_the_switch_may_halve_what_is_sent() -> None:
    unicast = replace(NOTHING, link_sent_bytes=900e3)
    assert floor(replace(unicast, switch_sent_bytes=450e3)) == pytest.approx(1.0)
    assert floor(replace(unicast, switch_sent_bytes=0.0)) == 0, "zero is an answer, not a missing one"
    assert floor(replace(unicast, switch_sent_bytes=1800e3)) == pytest.approx(2.0), "nobody has to use the switch"


def test_the_slowest_part_counts_alone() -> None:
    """They may overlap perfectly, so their sum is no floor."""
    cost = replace(NOTHING, flops=989e6 * 3, hbm_bytes=50 * MIB + 3.35e6 * 2, link_sent_bytes=450e3 * 5)
    assert floor(cost) == pytest.approx(5.0)


def test_ranks_on_one_gpu_share_it_and_need_no_link() -> None:
    cost = replace(NOTHING, flops=989e6, link_sent_bytes=1e12)
    assert floor(cost, ranks=4, shared=True) == pytest.approx(4.0)
    memory = replace(NOTHING, hbm_bytes=25 * MIB)
    assert floor(memory, ranks=2, shared=True) == 0
    assert floor(memory, ranks=4, shared=True) == pytest.approx(50 * MIB / 3.35e12 * 1e6)


def test_unknown_hardware_has_no_floor() -> None:
    assert floor_us(NOTHING, hardware="2 cores, x86_64", dtype="bf16", world_size=2, shared_gpu=False) is None
    assert peaks_of("") is None
    assert peaks_of("8x NVIDIA H200") is GPUS["H200"]


costs = st.builds(
    Cost,
    flops=st.floats(0, 1e18),
    hbm_bytes=st.floats(0, 1e13),
    link_sent_bytes=st.floats(0, 1e12),
    link_received_bytes=st.floats(0, 1e12),
    phases=st.integers(0, 10),
    switch_sent_bytes=st.none() | st.floats(0, 1e12),
)


@pytest.mark.parametrize("part", ["flops", "hbm", "link", "l2_bytes"])
@given(cost=costs, factor=st.floats(1, 100), shared=st.booleans())
@settings(max_examples=50, deadline=None)
def test_better_hardware_never_raises_the_floor(part: str, cost: Cost, factor: float, shared: bool) -> None:
    base = GPUS["H100"]
    if part == "flops":
        better = replace(base, flops={name: peak * factor for name, peak in base.flops.items()})
    else:
        better = Peaks(**(vars(base) | {part: getattr(base, part) * factor}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GPUS, "Better", better)
        assert floor(cost, hardware="Better", shared=shared) <= floor(cost, shared=shared)


@pytest.mark.parametrize("part", ["flops", "hbm_bytes", "link_sent_bytes"])
@given(cost=costs, factor=st.floats(1, 100), shared=st.booleans())
@settings(max_examples=50, deadline=None)
def test_more_work_never_lowers_the_floor(part: str, cost: Cost, factor: float, shared: bool) -> None:
    more = replace(cost, **{part: getattr(cost, part) * factor})
    assert floor(more, shared=shared) >= floor(cost, shared=shared) >= 0
