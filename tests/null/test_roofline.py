"""Bounds by hand for known problems, never worse on better hardware, and never below what has been measured."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from pkb.cli.main import app
from pkb.problems.registry import default_registry
from pkb.roofline.bounds import CEILINGS, Bounds, bounds_of, cost_of
from pkb.roofline.hardware import load, machines, shared
from pkb.roofline.rows import bounds_row
from pkb.roofline.utilisation import utilisation
from pkb.types.cost import Cost
from pkb.types.errors import UserError
from pkb.types.hardware import Hardware

H100 = load("h100x8")
MIB = 2**20


def bounds(
    problem: int | Cost,
    *,
    hardware: Hardware = H100,
    ceilings: str = "ideal",
    ranks: int = 4,
    size: str = "paper",
    link_efficiency: float = 1.0,
) -> Bounds:
    cost = problem
    if isinstance(cost, int):
        cost = cost_of(default_registry().get(cost), size=size, world_size=ranks, dtype="bf16")
    return bounds_of(
        cost, hardware=hardware, ceilings=ceilings, world_size=ranks, dtype="bf16", link_efficiency=link_efficiency
    )


def test_all_reduce_by_hand() -> None:
    """1024 x 1024 bf16 = 2 MiB = S, 4 ranks, H100."""
    found = bounds(1)
    s = 2 * MIB
    assert found.compute_us == pytest.approx(0.75 * 1024 * 1024 / 989e12 * 1e6)  # 3 of 4 additions fall on each rank
    assert found.hbm_us == pytest.approx(2 * s / 3.35e12 * 1e6)  # read once, written once: 1.25 us
    assert found.link_us == pytest.approx(1.5 * s / 450e9 * 1e6)  # 2 (n-1)/n S: 6.99 us
    assert found.switch_us == pytest.approx(1.25 * s / 450e9 * 1e6)  # S + S/n: 5.83 us
    assert found.bound_us == found.link_best_us == found.switch_us
    assert found.floor_us == pytest.approx(1.1 + 2 * 0.6)  # a launch and two dependent steps
    assert found.unoverlapped_us == pytest.approx(found.compute_us + found.hbm_us + found.link_best_us)
    assert found.bound_with_floor_us == pytest.approx(found.bound_us + 2.3)
    assert found.binds == "link"
    # An A100's switch cannot reduce: all of 2 (n-1)/n S at 300 GB/s.
    old = bounds(1, hardware=load("a100x8"))
    assert old.switch_us is None
    assert old.bound_us == pytest.approx(1.5 * s / 300e9 * 1e6)


def test_all_gather_by_hand() -> None:
    """A shard of 2 MiB on each of 4 ranks: 3 shards arrive, whether sent one by one or by multicast."""
    found = bounds(2)
    assert found.compute_us == 0
    assert found.hbm_us == pytest.approx(5 * 2 * MIB / 3.35e12 * 1e6)  # own shard read, four written
    assert found.link_us == found.switch_us == pytest.approx(3 * 2 * MIB / 450e9 * 1e6)  # 13.98 us
    assert found.floor_us == pytest.approx(1.1 + 0.6)
    # The switch works at 310 GB/s at best, ordinary transfers at 370.
    real = bounds(2, ceilings="reachable")
    assert real.bound_us == pytest.approx(3 * 2 * MIB / 370e9 * 1e6)


def test_gemm_reduce_scatter_by_hand() -> None:
    """(1024, 512 / 4) @ (512 / 4, 1024), summed over 4 ranks, of which each keeps a quarter."""
    found = bounds(16)
    assert found.compute_us == pytest.approx((2 * 1024 * 1024 * 128 + 0.75 * 1024 * 1024) / 989e12 * 1e6)
    assert found.hbm_us == pytest.approx((1024 * 128 * 2 + 1024 * 1024 / 4) * 2 / 3.35e12 * 1e6)
    assert found.link_us == pytest.approx(0.75 * 2 * MIB / 450e9 * 1e6)  # 3.50 us
    assert found.switch_us == pytest.approx(2 * MIB / 450e9 * 1e6)  # also the own quarter goes through the switch
    assert found.bound_us == found.link_us, "what goes through the switch is more here"


def test_ring_attention_by_hand() -> None:
    """16 x 16 positions, 8 heads of 64, 4 ranks with 4 positions each; K and V of the 3 others arrive."""
    found = bounds(54)
    tensor = 16 * 4 * 8 * 64
    assert found.compute_us == pytest.approx(4 * tensor * 4 * 3.5 / 989e12 * 1e6)
    assert found.link_us == pytest.approx(3 * 2 * tensor * 2 / 450e9 * 1e6)  # 0.87 us
    assert found.bound_us == found.link_us
    assert found.binds == "latency", "1.7 us of launch and step are more than 0.87 us of transfers"
    long = bounds(54, size="real")
    assert long.binds == "compute"
    assert long.floor_us == found.floor_us


def test_moe_dispatch_by_hand() -> None:
    """1024 rows of 2 KiB, a quarter of which stays; no switch helps an all-to-all."""
    found = bounds(27)
    assert found.link_us == pytest.approx(768 * 2048 / 450e9 * 1e6)  # 3.50 us
    assert found.hbm_us == pytest.approx(2 * 2 * MIB / 3.35e12 * 1e6)  # 1.25 us
    assert found.switch_us is None
    assert found.bound_us == found.link_us
    assert found.overlap_gain == pytest.approx((found.link_us + found.hbm_us) / found.link_us)


def test_the_published_example() -> None:
    """GEMM and all-gather of the product, M = N = 1024, K = 512, 4 ranks, link at 70 % of 450 GB/s: 4.99 us."""
    words = "roofline 14 --hardware h100x8 --ranks 4 --size paper --link-efficiency 0.7 --json"
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert row["link_sent_bytes"] == row["link_received_bytes"] == 0.75 * 1024 * 1024 * 2
    assert row["compute_us"] == pytest.approx(2 * 1024 * 256 * 512 / 989e12 * 1e6)  # 0.27 us
    assert row["bound_us"] == pytest.approx(4.993, abs=0.001)
    assert row["binds"] == "link"


@pytest.mark.parametrize(
    ("machine", "ranks", "bus_gb_per_s"),
    [("h100x8", 8, 480), ("h200x8", 8, 482), ("b200x8", 8, 838), ("gb200-nvl72", 72, 847)],
)
@pytest.mark.parametrize("ceilings", CEILINGS)
def test_measured_all_reduces_stay_below_the_limit(
    machine: str, ranks: int, bus_gb_per_s: float, ceilings: str
) -> None:
    """NCCL with NVLS, as published: bus bandwidth is 2 (n-1)/n S over the time. Unicast alone could not reach it on Hopper."""
    size = 16 * 2**30
    measured_us = 2 * (ranks - 1) / ranks * size / (bus_gb_per_s * 1e9) * 1e6
    cost = Cost(
        flops=0, hbm_bytes=2 * size, phases=2,
        link_sent_bytes=2 * (ranks - 1) / ranks * size, link_received_bytes=2 * (ranks - 1) / ranks * size,
        switch_sent_bytes=(1 + 1 / ranks) * size, switch_received_bytes=(1 + 1 / ranks) * size,
    )  # fmt: skip
    found = bounds(cost, hardware=load(machine), ranks=ranks, ceilings=ceilings)
    assert found.bound_us <= measured_us
    if ceilings == "reachable" and ranks == 8:
        assert found.bound_us > 0.95 * measured_us, "a reachable limit that is far off says nothing"
    if machine in ("h100x8", "h200x8"):
        assert found.link_us > measured_us


def test_the_switch_helps_eight_ranks_as_much_as_measured() -> None:
    """H200: 1.29x with 8 GPUs, 1.00x with 4, where NCCL does not even choose it."""
    h200 = load("h200x8")
    for ranks, gain, room in ((8, 1.29, 0.02), (4, 1.0, 0.02)):
        found = bounds(1, hardware=h200, ranks=ranks, ceilings="reachable", size="real")
        assert found.switch_us is not None
        assert found.link_us / found.switch_us == pytest.approx(gain, abs=room)


def test_on_a_shared_gpu_all_ranks_count_and_the_memory_is_the_link() -> None:
    one = shared(load("h200x8"))
    cost = Cost(flops=989e6, hbm_bytes=4.8e6, link_sent_bytes=9.6e6, link_received_bytes=9.6e6, phases=1,
                switch_sent_bytes=0.0, switch_received_bytes=0.0)  # fmt: skip
    found = bounds(cost, hardware=one, ranks=4)
    assert (found.compute_us, found.hbm_us) == pytest.approx((4.0, 4.0))
    assert found.link_us == pytest.approx(8.0), "each byte that crosses is one access to memory"
    assert found.switch_us is None
    # An all-gather kernel reads W shards and stores W of each: the limit may not be above that traffic, 4 (1 + 4) shards.
    gather = bounds(2, hardware=one)
    assert gather.bound_us <= 4 * (1 + 4) * 2 * MIB / 4.8e12 * 1e6 * (1 + 1e-9)


def test_on_a_shared_gpu_ranks_with_less_to_do_count_as_what_they_are() -> None:
    """Four times the busiest rank is more than there is to do where one is a root, or the mask is causal."""
    one = shared(load("h200x8"))
    part = 2 * MIB
    for root in (5, 6):  # scatter and gather: four parts are read and written, three cross
        found = bounds(root, hardware=one)
        assert found.hbm_us == pytest.approx(8 * part / 4.8e12 * 1e6)
        assert found.link_us == pytest.approx(3 * part / 4.8e12 * 1e6)
        assert bounds(root).link_us == pytest.approx(3 * part / 450e9 * 1e6), "a GPU each: the link of the root"
    tensor = 16 * 4 * 8 * 64
    ring = bounds(54, hardware=one)  # of 4 x 4 blocks, 6 are full and 4 are half full; 6 pairs of K and V cross
    assert ring.compute_us == pytest.approx(4 * tensor * 4 * (6 + 4 / 2) / 989e12 * 1e6)
    assert ring.link_us == pytest.approx(6 * 2 * tensor * 2 / 4.8e12 * 1e6)
    # What is sent is received: without a mean, the smaller of the two figures is the nearer one.
    lopsided = Cost(flops=0, hbm_bytes=0, link_sent_bytes=9.6e6, link_received_bytes=2.4e6, phases=1)
    assert bounds(lopsided, hardware=one).link_us == pytest.approx(2.0)
    assert bounds(replace(lopsided, mean_link_bytes=0.0), hardware=one).link_us == 0, "zero is an answer"


def test_what_binds() -> None:
    def made(compute: float, hbm: float, link: float, floor: float) -> Bounds:
        return Bounds(compute_us=compute, hbm_us=hbm, link_us=link, switch_us=None, floor_us=floor)

    assert made(3, 2, 1, 0).binds == "compute"
    assert made(1, 3, 2, 2.9).binds == "hbm"
    assert made(1, 2, 3, 3).binds == "link"
    assert made(1, 2, 3, 3.1).binds == "latency"
    assert made(2, 2, 2, 0).overlap_gain == 3
    assert made(0, 0, 0, 1).overlap_gain == 1
    assert replace(made(0, 1, 4, 0), switch_us=2).bound_us == 2
    assert replace(made(0, 1, 4, 0), switch_us=5).bound_us == 4, "nobody has to use the switch"
    assert replace(made(0, 1, 4, 0), switch_us=0.0).bound_us == 1, "zero is an answer"


def test_every_problem_has_a_row() -> None:
    rows = [
        bounds_row(p, size="paper", ranks=4, dtype=p.default_dtype, hardware=H100, ceilings="ideal")
        for p in default_registry().all()
    ]
    assert [row.id for row in rows] == list(range(1, 88))
    for row in rows:
        assert 0 < row.bound_us <= row.unoverlapped_us <= 3 * row.bound_us
        assert row.hbm_us > 0
        assert row.link_us > 0 or row.phases == 0 or row.switch_us is not None, row.name


def test_more_ranks_never_move_fewer_bytes_in_all() -> None:
    """Over powers of two: layouts of three ranks differ from those of four."""
    for problem in default_registry().all():
        totals = [
            ranks * cost.typical_link_bytes
            for ranks in (1, 2, 4, 8)
            if problem.why_not("paper", ranks, problem.default_dtype) is None
            for cost in [cost_of(problem, size="paper", world_size=ranks, dtype=problem.default_dtype)]
        ]
        assert all(more >= fewer * (1 - 1e-9) for fewer, more in itertools.pairwise(totals)), problem.stem


costs = st.builds(
    Cost,
    flops=st.floats(0, 1e18),
    hbm_bytes=st.floats(0, 1e13),
    link_sent_bytes=st.floats(0, 1e12),
    link_received_bytes=st.floats(0, 1e12),
    phases=st.integers(0, 10),
    switch_sent_bytes=st.none() | st.floats(0, 1e12),
    switch_received_bytes=st.none() | st.floats(0, 1e12),
)
machine_names = st.sampled_from(machines())


@pytest.mark.parametrize("part", ["flops", "hbm_bytes_per_s", "link_bytes_per_s", "switch_bytes_per_s"])
@given(
    cost=costs, name=machine_names, factor=st.floats(1, 100), on_one=st.booleans(), ceilings=st.sampled_from(CEILINGS)
)
@settings(max_examples=60, deadline=None)
def test_faster_hardware_is_never_slower(
    part: str, cost: Cost, name: str, factor: float, on_one: bool, ceilings: str
) -> None:
    base = shared(load(name)) if on_one else load(name)
    limit = base.ceilings(ceilings)
    value = getattr(limit, part)
    if value is None:
        return
    faster = {k: v * factor for k, v in value.items()} if part == "flops" else value * factor
    change: dict[str, Any] = {part: faster}
    change = {ceilings: replace(limit, **change)}
    better = replace(base, **change)
    before, after = bounds(cost, hardware=base, ceilings=ceilings), bounds(cost, hardware=better, ceilings=ceilings)
    assert after.bound_us <= before.bound_us
    assert after.unoverlapped_us <= before.unoverlapped_us
    assert after.floor_us == before.floor_us


@given(cost=costs, name=machine_names, efficiency=st.floats(0.01, 1))
@settings(max_examples=60, deadline=None)
def test_a_derated_link_is_never_faster(cost: Cost, name: str, efficiency: float) -> None:
    full, derated = bounds(cost, hardware=load(name)), bounds(cost, hardware=load(name), link_efficiency=efficiency)
    assert derated.bound_us >= full.bound_us
    assert derated.link_us == pytest.approx(full.link_us / efficiency)
    assert (derated.compute_us, derated.hbm_us) == (full.compute_us, full.hbm_us)


@given(cost=costs, name=machine_names)
@settings(max_examples=60, deadline=None)
def test_what_is_reachable_is_never_faster_than_ideal(cost: Cost, name: str) -> None:
    ideal, reachable = (bounds(cost, hardware=load(name), ceilings=which) for which in CEILINGS)
    assert reachable.bound_us >= ideal.bound_us
    assert reachable.floor_us > ideal.floor_us


def test_more_ranks_than_the_domain() -> None:
    with pytest.raises(UserError, match="h100x8 joins 8 GPUs, and 9 ranks"):
        bounds(Cost(0, 0, 0, 0, 0), ranks=9)
    assert bounds(Cost(0, 0, 0, 0, 0), ranks=9, hardware=load("gb200-nvl72")).bound_us == 0


def test_utilisation() -> None:
    problem = default_registry().get(2)
    case: dict[str, Any] = {"size": "paper", "ranks": 4, "dtype": "bf16", "reference_us": 139.8, "candidate_us": 27.96}
    found = utilisation(problem, hardware=H100, **case)
    assert found is not None
    assert (found.hardware, found.origin, found.binds) == ("h100x8", "datasheet", "link")
    assert found.ideal_us == pytest.approx(13.98, abs=0.01)
    assert found.reachable_us == pytest.approx(13.98 * 450 / 370, abs=0.01)
    assert found.reference_utilisation == pytest.approx(0.1, abs=0.001)
    assert found.candidate_utilisation == pytest.approx(0.5, abs=0.001)
    assert utilisation(problem, hardware=None, **case) is None
    assert utilisation(problem, hardware=replace(H100, domain=2), **case) is None
