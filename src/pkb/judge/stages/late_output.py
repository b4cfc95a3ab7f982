"""A result is whole when its call returns: what is written into it later was still on its way, from a thread, a stream that
nobody joined, or a peer that nobody waited for.

Outputs are fetched when truths are known, milliseconds later, and are right by then. So ranks commit to them at once.
"""

from pkb.judge.decision import Decided
from pkb.judge.exchange import Outcome, Reports
from pkb.types.difference import rank_words
from pkb.types.verdict import Evidence, Failure, FailureKind, RaceKind, Stage, Verdict


def changed_ranks(outcome: Outcome, slots: tuple[int, ...], reports: Reports) -> tuple[int, ...]:
    """Ranks whose outputs differ from the digests that they committed to."""
    found = outcome.digests.items()
    return tuple(sorted({rank for (slot, rank), digest in found if reports[rank].digests[slots.index(slot)] != digest}))


def require_whole(outcome: Outcome, slots: tuple[int, ...], reports: Reports, stage: Stage) -> None:
    """The verdict is a race, which is not an accusation: a push to a peer that nothing waits for looks the same as a thread."""
    ranks = changed_ranks(outcome, slots, reports)
    if ranks:
        raise Decided(
            Verdict.RACE,
            stage,
            f"the result on {rank_words(ranks)} was right when it was looked at, and another one when the call returned",
            Evidence(
                race_kind=RaceKind.MISSING_END_BARRIER,
                failure=Failure(FailureKind.LATE_OUTPUT, "digest differs", ranks[0]),
                failing_ranks=ranks,
            ),
        )
