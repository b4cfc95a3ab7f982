"""A share of the outputs of timed and queued calls, chosen after the calls are over, must be right."""

import math

from pkb.judge.decision import Decided, bad_output
from pkb.judge.exchange import Outcome, Reports
from pkb.judge.stages.late_output import changed_ranks
from pkb.judge.timing.sides import Workload
from pkb.types.difference import Mismatch, Pattern, rank_words
from pkb.types.verdict import Evidence, Failure, FailureKind, RaceKind, Stage, Verdict


def verify_timed(work: Workload, slots: tuple[int, ...], reports: Reports) -> None:
    """Outputs must also match the digests that the ranks sent with the times of all calls."""
    _require_committed(_require_right(work, slots, words="timed calls"), slots, reports)


def verify_queued(work: Workload, slots: tuple[int, ...], reports: Reports) -> None:
    """The batch that confirms a time must have done its work before the clock stopped."""
    _require_committed(_require_right(work, slots, words="queued calls"), slots, reports)


def _require_committed(outcome: Outcome, slots: tuple[int, ...], reports: Reports) -> None:
    for rank in changed_ranks(outcome, slots, reports)[:1]:
        raise Decided(
            Verdict.REJECTED,
            Stage.TIMING,
            f"rank {rank} changed an output after its call was over",
            Evidence(failing_ranks=(rank,), failure=Failure(FailureKind.LATE_OUTPUT, "digest differs", rank)),
        )


def _require_right(work: Workload, slots: tuple[int, ...], *, words: str) -> Outcome:
    if not work.verify_share:
        return Outcome()
    chosen = work.source.sample(slots, max(1, math.ceil(work.verify_share * len(slots))))
    work.exchange.release()
    outcome = work.exchange.check(chosen, words=words)
    if outcome.rejected:
        raise bad_output(outcome.rejected, Stage.TIMING)
    if outcome.mismatch:
        raise _wrong_when_timed(outcome.mismatch)
    return outcome


def _wrong_when_timed(mismatch: Mismatch) -> Decided:
    """A race, which is no accusation: work that was left out in calls believed to be unwatched looks no different from an
    epoch that wrapped after hundreds of honest calls, or from ranks that began closer together than ever before."""
    stale = Pattern.STALE in mismatch.patterns
    return Decided(
        Verdict.RACE,
        Stage.TIMING,
        f"right when checked one by one, wrong in a timed call: {mismatch.output} on {rank_words(mismatch.ranks)} "
        f"({mismatch.pattern or mismatch.what})",
        Evidence(
            race_kind=RaceKind.STALE_READ if stale else RaceKind.MISSING_SYNCHRONISATION,
            mismatch=mismatch,
            failure=Failure(FailureKind.TIMED_OUTPUT, "a timed call returned a wrong result"),
            failing_ranks=mismatch.ranks,
        ),
    )
