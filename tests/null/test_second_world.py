"""Which other number of ranks a candidate is tried with: three, wherever the problem and the platform have it."""

import pytest

from pkb.judge.second_world import SECOND_WORLDS, SecondWorld, second_world
from pkb.platforms.base import PlatformFacts
from pkb.problems import default_registry
from pkb.types.case import Case


def chosen(problem: int, ranks: int, *, room: int = 8, dtype: str = "") -> SecondWorld | None:
    found = default_registry().get(str(problem))
    case = Case(found.stem, "node", ranks, "tiny", dtype or found.default_dtype, "standard")
    return second_world(case, found, PlatformFacts(name="node", available=True, max_ranks=room))


@pytest.mark.parametrize(
    ("problem", "ranks", "room", "other"),
    [
        (1, 1, 8, ("tiny", 3)),
        (1, 2, 8, ("tiny", 3)),
        (1, 3, 8, ("tiny", 2)),
        (1, 4, 8, ("tiny", 3)),
        (1, 8, 8, ("tiny", 3)),
        (1, 2, 2, None),  # a node with two GPUs
        (1, 1, 2, ("tiny", 2)),
        (1, 2, 3, ("tiny", 3)),
        (1, 3, 3, ("tiny", 2)),
        (36, 4, 4, ("odd", 3)),  # three does not divide the heads of `tiny`
        (36, 2, 2, None),
        (36, 3, 8, ("tiny", 2)),
        (55, 4, 8, ("tiny", 2)),  # pairs
        (55, 2, 8, ("tiny", 4)),
        (55, 2, 3, None),
        (51, 4, 8, ("tiny", 8)),
        (51, 8, 8, ("tiny", 4)),
        (51, 4, 4, None),
        (49, 4, 8, ("tiny", 3)),
    ],
)
def test_the_other_number_of_ranks(problem: int, ranks: int, room: int, other: tuple[str, int] | None) -> None:
    assert chosen(problem, ranks, room=room) == other


def test_every_problem_that_can_have_three_ranks_is_tried_with_three() -> None:
    without = {
        problem.id for problem in default_registry().all() if (other := chosen(problem.id, 4)) and other.ranks != 3
    }
    assert without == {51, 55, 56, 57}, "these run with even numbers only"
    assert all(3 not in default_registry().get(str(number)).world_sizes for number in without)


def test_a_dtype_that_the_problem_does_not_have_has_no_world() -> None:
    assert chosen(1, 4, dtype="int4") is None
    assert SECOND_WORLDS[0] == ("tiny", 3)
