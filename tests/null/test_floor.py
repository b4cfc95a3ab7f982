"""The physical floor: by hand for known hardware, never higher on better hardware or for less work."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkb.problems.registry import default_registry
from pkb.roofline.bounds import cost_of
from pkb.roofline.floor import floor_on, floor_us, may_send_fewer_bits
from pkb.roofline.hardware import load, write_hardware
from pkb.types.cost import Cost

FAST = 49 / 64
NOTHING = Cost(flops=0, hbm_bytes=0, link_sent_bytes=0, link_received_bytes=0, phases=0)
MIB = 2**20


def floor(
    cost: Cost, *, hardware: str = "NVIDIA H100 80GB HBM3", dtype: str = "bf16", ranks: int = 4, **more: bool
) -> float:
    found = floor_us(cost, hardware=hardware, dtype=dtype, world_size=ranks, shared_gpu=more.get("shared", False))
    assert found is not None
    return found


def test_compute_by_hand() -> None:
    """Two levels of Strassen's algorithm do with 49 of 64 products."""
    assert floor(replace(NOTHING, flops=989e12)) == pytest.approx(1e6 * FAST)  # a second's worth
    assert floor(replace(NOTHING, flops=989e6), dtype="fp32") == pytest.approx(2.0 * FAST)  # TF32: half of bf16
    assert floor(replace(NOTHING, flops=67e6), dtype="fp64") == pytest.approx(FAST)
    assert floor(replace(NOTHING, flops=989e6, least_flops=98.9e6)) == pytest.approx(0.1), (
        "another algorithm needs less"
    )
    assert floor(replace(NOTHING, flops=989e6, least_flops=1e12)) == pytest.approx(FAST)


def test_memory_by_hand() -> None:
    """3.35 TB/s; what fits into 50 MiB of L2 may never leave it."""
    assert floor(replace(NOTHING, hbm_bytes=50 * MIB)) == 0
    assert floor(replace(NOTHING, hbm_bytes=50 * MIB + 3.35e6)) == pytest.approx(1.0)


def test_link_by_hand() -> None:
    """450 GB/s in one direction."""
    assert floor(replace(NOTHING, link_sent_bytes=450e3, link_received_bytes=450e3)) == pytest.approx(1.0)


def test_fewer_bits_halve_what_is_sent_where_a_result_need_not_be_exact() -> None:
    sent = replace(NOTHING, link_sent_bytes=450e3, link_received_bytes=450e3)
    machine = load("h100x8")
    assert floor_on(machine, sent, dtype="bf16", world_size=4, shared_gpu=False, fewer_bits=True) == pytest.approx(0.5)
    exact = [problem.id for problem in default_registry().all() if not may_send_fewer_bits(problem)]
    assert {1, 2, 3, 4, 5, 6, 7, 8, 10, 27, 33, 34, 35, 36, 64, 85} <= set(exact)
    assert not {13, 16, 17, 40, 54, 76} & set(exact)


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
    assert floor(cost, ranks=4, shared=True) == pytest.approx(4.0 * FAST)
    memory = replace(NOTHING, hbm_bytes=25 * MIB)
    assert floor(memory, ranks=2, shared=True) == 0
    assert floor(memory, ranks=4, shared=True) == pytest.approx(50 * MIB / 3.35e12 * 1e6)


def test_on_one_gpu_ranks_with_less_to_do_count_as_what_they_are() -> None:
    """Four times the busiest rank would reject an honest kernel of a problem with a root, or of a causal one."""
    uneven = replace(NOTHING, flops=989e6 * 4, mean_flops=989e6, hbm_bytes=100 * MIB, mean_hbm_bytes=12.5 * MIB)
    assert floor(uneven, ranks=4, shared=True) == pytest.approx(4.0 * FAST)
    memory = replace(NOTHING, hbm_bytes=100 * MIB, mean_hbm_bytes=12.5 * MIB + 3.35e6)
    assert floor(memory, ranks=4, shared=True) == pytest.approx(4.0)
    assert floor(uneven, ranks=4) == pytest.approx(FAST), "with a GPU each, a kernel may share the work out"
    assert floor(replace(uneven, mean_flops=0.0), ranks=4, shared=True) == 0, "zero is an answer, not a missing one"


def test_another_algorithm_may_send_less() -> None:
    stated = replace(NOTHING, link_sent_bytes=1800e3, switch_sent_bytes=900e3)
    assert floor(stated) == pytest.approx(2.0)
    assert floor(replace(stated, least_link_bytes=450e3)) == pytest.approx(1.0)
    assert floor(replace(stated, least_link_bytes=0.0)) == 0
    assert floor(replace(stated, least_link_bytes=1350e3)) == pytest.approx(2.0), "nobody has to take the other one"


def test_calls_with_less_to_do_may_take_less_memory_traffic() -> None:
    stated = replace(NOTHING, hbm_bytes=50 * MIB + 3 * 3.35e6)
    assert floor(stated) == pytest.approx(3.0)
    assert floor(replace(stated, least_hbm_bytes=50 * MIB + 3.35e6)) == pytest.approx(1.0)
    clipping = cost_of(default_registry().get(21), size="real", world_size=8, dtype="bf16")
    assert clipping.least_hbm_bytes == pytest.approx(clipping.typical_hbm_bytes / 2.5), (
        "three passes, in one call of four one"
    )


@pytest.mark.parametrize("number", [64, 67, 69, 70, 79, 85])
def test_integers_may_travel_in_the_bytes_that_they_need(number: int) -> None:
    """Ids below a million need no 64 bits, and differences of sorted keys are few: a kernel that packs them is no liar."""
    problem = default_registry().get(number)
    cost = cost_of(problem, size="real", world_size=8, dtype=problem.default_dtype)
    assert cost.least_link_bytes is not None
    assert cost.least_link_bytes < cost.typical_link_bytes


def test_gathering_weights_instead_of_products_is_not_rejected() -> None:
    """Problem 14, M = 1024 and K = 512: weights are half of the products. An A100 has no multicast."""
    cost = cost_of(default_registry().get(14), size="paper", world_size=4, dtype="bf16")
    weights_us = 3 * 512 * 256 * 2 / 300e9 * 1e6
    assert floor(cost, hardware="NVIDIA A100-SXM4-80GB") == pytest.approx(weights_us)


def test_unknown_hardware_has_no_floor() -> None:
    assert floor_us(NOTHING, hardware="2 cores, x86_64", dtype="bf16", world_size=2, shared_gpu=False) is None
    assert floor_us(NOTHING, hardware="", dtype="bf16", world_size=2, shared_gpu=False) is None


def test_a_gpu_is_known_by_its_whole_name() -> None:
    """4.8 TB/s and 60 MiB make it an H200; a GH200 is another chip, and its floor is not an H200's."""
    memory = replace(NOTHING, hbm_bytes=60 * MIB + 4.8e6)
    assert floor(memory, hardware="8x NVIDIA H200") == pytest.approx(1.0)
    assert floor_us(memory, hardware="NVIDIA GH200 480GB", dtype="bf16", world_size=1, shared_gpu=False) is None
    compute = replace(NOTHING, flops=2500e6)
    assert floor(compute, hardware="NVIDIA GB200") == pytest.approx(FAST)
    assert floor(compute, hardware="NVIDIA B200") == pytest.approx(2500 / 2250 * FAST)


def test_without_a_switch_that_reduces_all_bytes_are_sent() -> None:
    cost = replace(NOTHING, link_sent_bytes=900e3, switch_sent_bytes=300e3)
    assert floor(cost, hardware="NVIDIA A100-SXM4-80GB") == pytest.approx(3.0)


def test_a_file_of_the_user_cannot_raise_the_floor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured ceilings are below the datasheet's; taken for physics they would reject honest times."""
    slow = load("h100x8")
    slow = replace(slow, ideal=replace(slow.ideal, link_bytes_per_s=1e9))
    write_hardware(tmp_path / "slow.toml", slow)
    monkeypatch.setenv("PKB_HARDWARE", str(tmp_path / "slow.toml"))
    assert floor(replace(NOTHING, link_sent_bytes=450e3)) == pytest.approx(1.0)


costs = st.builds(
    Cost,
    flops=st.floats(0, 1e18),
    hbm_bytes=st.floats(0, 1e13),
    link_sent_bytes=st.floats(0, 1e12),
    link_received_bytes=st.floats(0, 1e12),
    phases=st.integers(0, 10),
    switch_sent_bytes=st.none() | st.floats(0, 1e12),
    mean_flops=st.none() | st.floats(0, 1e18),
    mean_hbm_bytes=st.none() | st.floats(0, 1e13),
    least_link_bytes=st.none() | st.floats(0, 1e12),
)


@pytest.mark.parametrize("part", ["flops", "hbm_bytes_per_s", "link_bytes_per_s", "l2_bytes"])
@given(cost=costs, factor=st.integers(1, 100), shared_gpu=st.booleans())
@settings(max_examples=50, deadline=None)
def test_better_hardware_never_raises_the_floor(part: str, cost: Cost, factor: int, shared_gpu: bool) -> None:
    base = load("h100x8")
    if part == "l2_bytes":
        better = replace(base, l2_bytes=base.l2_bytes * factor)
    elif part == "flops":
        better = replace(base, ideal=replace(base.ideal, flops={k: v * factor for k, v in base.ideal.flops.items()}))
    else:
        better = replace(base, ideal=replace(base.ideal, **{part: getattr(base.ideal, part) * factor}))
    before, after = (floor_on(one, cost, dtype="bf16", world_size=4, shared_gpu=shared_gpu) for one in (base, better))
    assert after <= before


@pytest.mark.parametrize("part", ["flops", "hbm_bytes", "link_sent_bytes"])
@given(cost=costs, factor=st.floats(1, 100), shared=st.booleans())
@settings(max_examples=50, deadline=None)
def test_more_work_never_lowers_the_floor(part: str, cost: Cost, factor: float, shared: bool) -> None:
    more = replace(cost, **{part: getattr(cost, part) * factor})
    assert floor(more, shared=shared) >= floor(cost, shared=shared) >= 0
