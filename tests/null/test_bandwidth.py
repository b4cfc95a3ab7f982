"""The traffic of collectives, and algBW and busBW against the formulas of nccl-tests, written out once more."""

from collections.abc import Callable

import pytest

from pkb.problems import default_registry
from pkb.problems.base import DTYPES, Problem
from pkb.roofline.bandwidth import alg_bandwidth, bandwidths, bus_bandwidth
from pkb.types.cost import Cost

MIB, US = 1 << 20, 50.0
OfRanks = Callable[[int], float]
PROBLEMS = default_registry().all()

# The factors of nccl-tests' getBw functions; S is 1 MiB.
FACTORS: dict[Callable[..., Cost], OfRanks] = {
    Cost.all_reduce: lambda n: 2 * (n - 1) / n,
    Cost.all_gather: lambda n: (n - 1) / n,
    Cost.reduce_scatter: lambda n: (n - 1) / n,
    Cost.all_to_all: lambda n: (n - 1) / n,
    Cost.broadcast: lambda n: 1.0,
    Cost.reduce: lambda n: 1.0,
}


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("collective", FACTORS, ids=lambda collective: collective.__name__)
def test_bandwidths_are_those_of_nccl_tests(collective: Callable[..., Cost], ranks: int) -> None:
    cost = collective(MIB, ranks)
    alg = MIB / 1e9 / (US / 1e6)
    assert alg_bandwidth(cost, US) == pytest.approx(alg)
    assert bus_bandwidth(cost, US) == pytest.approx(alg * FACTORS[collective](ranks))


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize(
    ("number", "tensors", "factor"),
    [
        (1, lambda n: 1, lambda n: 2 * (n - 1) / n),
        (2, lambda n: n, lambda n: (n - 1) / n),
        (3, lambda n: 1, lambda n: 1),
        (4, lambda n: 1, lambda n: 1),
        (5, lambda n: n, lambda n: (n - 1) / n),
        (6, lambda n: n, lambda n: (n - 1) / n),
        (7, lambda n: n, lambda n: (n - 1) / n),
        (8, lambda n: n, lambda n: (n - 1) / n),
    ],
)
def test_the_eight_collectives(number: int, tensors: OfRanks, factor: OfRanks, ranks: int) -> None:
    """S in units of the (M, N) tensor that every rank begins or ends with."""
    problem = default_registry().get(number)
    size = problem.sizes["paper"]
    cost = problem.cost(size, ranks, 2)
    alg = tensors(ranks) * size["m"] * size["n"] * 2 / (US * 1e3)
    assert alg_bandwidth(cost, US) == pytest.approx(alg)
    assert bus_bandwidth(cost, US) == pytest.approx(alg * factor(ranks))


def test_alone_nothing_moves() -> None:
    for collective in FACTORS:
        cost = collective(MIB, 1, flops=3.0)
        assert (cost.flops, cost.link_sent_bytes, cost.link_received_bytes, cost.phases) == (3.0, 0, 0, 0)
        assert cost.switch_sent_bytes in (None, 0)
        assert alg_bandwidth(cost, US) is None
        assert bus_bandwidth(cost, US) is None


def test_a_time_of_nothing_has_no_bandwidth() -> None:
    assert bus_bandwidth(Cost.all_reduce(MIB, 2), 0.0) is None


def test_other_traffic_counts_as_send_and_receive() -> None:
    halo = Cost(flops=0, hbm_bytes=0, link_sent_bytes=2 * MIB, link_received_bytes=MIB, phases=1)
    assert alg_bandwidth(halo, US) == bus_bandwidth(halo, US) == pytest.approx(2 * MIB / (US * 1e3))


def test_steps_add_up() -> None:
    first = Cost.all_to_all(4 * MIB, 4, flops=1.0, hbm_bytes=2.0, note="a")
    second = Cost.all_gather(8 * MIB, 4, flops=10.0, hbm_bytes=20.0, mean_flops=9.0)
    both = first + second
    assert (both.flops, both.mean_flops, both.hbm_bytes, both.mean_hbm_bytes) == (11.0, 10.0, 22.0, None)
    assert both.link_sent_bytes == both.link_received_bytes == 3 * MIB + 6 * MIB
    assert (both.switch_sent_bytes, both.switch_received_bytes) == (3 * MIB + 2 * MIB, 9 * MIB)
    assert (both.phases, both.payload_bytes, both.note) == (2, 12 * MIB, "a")
    halo = Cost(flops=0, hbm_bytes=0, link_sent_bytes=1, link_received_bytes=1, phases=1)
    assert (first + halo).payload_bytes is None
    assert (first + halo).switch_sent_bytes is None


@pytest.mark.parametrize("problem", PROBLEMS, ids=[problem.stem for problem in PROBLEMS])
def test_every_problem_that_moves_data_has_both(problem: Problem) -> None:
    for size in ("tiny", "paper", "real", "odd"):
        for ranks in problem.world_sizes:
            if problem.why_not(size, ranks, problem.default_dtype) is None:
                cost = problem.cost(problem.sizes[size], ranks, DTYPES[problem.default_dtype].itemsize)
                found = bandwidths(cost, reference_us=2 * US, candidate_us=US)
                moves = ranks > 1
                assert all((value is not None) == moves for value in found.values())
                if moves and cost.payload_bytes is not None:
                    assert 0.85 * min((ranks - 1) / ranks, 0.5) <= cost.bus_bytes / cost.payload_bytes <= 2
