"""Some calls with another number of ranks: with which, and what is looked at there."""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from pkb.judge.decision import Decided, reused_output, said_at
from pkb.judge.stages.correctness import check_calls
from pkb.judge.stages.prepare import Prepared
from pkb.judge.stages.races import provoke
from pkb.judge.worlds import World
from pkb.platforms.base import PlatformFacts
from pkb.problems.base import Problem
from pkb.types.case import Case
from pkb.types.protocol.commands import DrawSpec
from pkb.types.verdict import Stage


class SecondWorld(NamedTuple):
    size: str
    ranks: int

    @property
    def words(self) -> str:
        return f"size {self.size}, {self.ranks} ranks"


SECOND_WORLDS = tuple(SecondWorld(*world) for world in (("tiny", 3), ("odd", 3), ("tiny", 2), ("tiny", 4), ("tiny", 8)))
"""In the order in which they are tried. Three comes first: what is wrong with an odd number of ranks, or with one that is no
power of two (rounds of a tree, partners by exclusive or, pairs), is wrong with three, and may be right with 1, 2, 4 and 8.
Where W must divide heads or experts, three does so at `odd` only."""


def second_world(case: Case, problem: Problem, facts: PlatformFacts) -> SecondWorld | None:
    """None where the problem or the platform has no other number of ranks."""
    others = (world for world in SECOND_WORLDS if case.ranks != world.ranks <= facts.max_ranks)
    return next((world for world in others if problem.why_not(*world, case.dtype) is None), None)


class Passed(NamedTuple):
    check: str
    reused: Decided | None
    """What the candidate is all the same, where its outputs are overwritten there."""


def check_there(
    world: World,
    other: SecondWorld,
    candidate: Prepared,
    *,
    progress: Callable[[str], None],
    within: Callable[[Stage], contextlib.AbstractContextManager[None]],
) -> Passed:
    """Compares some calls one by one, and provokes races once: a barrier that leaves out one of three ranks gives the right
    result as long as no rank is late."""
    job, plan = world.job, world.job.plan
    spec = DrawSpec(job.case.problem, other.size, job.case.dtype)
    reused, races = None, ""
    with within(Stage.CORRECTNESS), world.blame(Stage.CORRECTNESS):
        check_calls(
            world.exchange,
            spec,
            trials=plan.second_world_trials,
            words=other.words,
            progress=progress,
            first_call_extra_s=candidate.first_call_extra_s(),
            same_bits=world.same_bits,
            mutates=bool(world.problem.mutates),
        )
    if plan.race_calls:
        with within(Stage.RACES), world.blame(Stage.RACES):
            provoked = provoke(world.exchange, spec, candidate, calls=plan.race_calls, repeats=1, progress=progress)
        races = ", races provoked once"
        reused = reused_output(provoked.reused) if provoked.reused else None
    return Passed(
        f"{plan.second_world_trials} calls at {other.size} with {other.ranks} ranks{races}",
        said_at(reused, other.words) if reused else None,
    )
