"""A share of the outputs of timed and queued calls, chosen after the calls are over, must be right."""

import math

from pkb.judge.decision import Decided
from pkb.judge.exchange import Outcome, Reports
from pkb.judge.timing.sides import Workload
from pkb.types.verdict import Evidence, Failure, FailureKind, Stage, Verdict


def verify_timed(work: Workload, slots: tuple[int, ...], reports: Reports) -> None:
    """Outputs must also be those that the ranks committed to with the times of all calls."""
    _require_committed(_require_right(work, slots, words="timed calls"), slots, reports)


def verify_queued(work: Workload, slots: tuple[int, ...], reports: Reports) -> None:
    """What confirms a time must have done the work too, before the clock was stopped."""
    _require_committed(_require_right(work, slots, words="queued calls"), slots, reports)


def _require_committed(outcome: Outcome, slots: tuple[int, ...], reports: Reports) -> None:
    for (slot, rank), digest in outcome.digests.items():
        if reports[rank].digests[slots.index(slot)] != digest:
            raise Decided(
                Verdict.REJECTED,
                Stage.TIMING,
                f"rank {rank} changed an output after its call was over",
                Evidence(failing_ranks=(rank,), failure=Failure(FailureKind.LATE_OUTPUT, "digest differs", rank)),
            )


def _require_right(work: Workload, slots: tuple[int, ...], *, words: str) -> Outcome:
    chosen = work.source.sample(slots, max(1, math.ceil(work.verify_share * len(slots))))
    work.exchange.release()
    outcome = work.exchange.check(chosen, words=words)
    if not outcome.rejected and not outcome.mismatch:
        return outcome
    what = outcome.rejected or (outcome.mismatch.pattern if outcome.mismatch else "")
    raise Decided(
        Verdict.REJECTED,
        Stage.TIMING,
        f"right when checked, wrong when timed: {what or 'values differ'}",
        Evidence(
            mismatch=outcome.mismatch,
            failure=Failure(FailureKind.TIMED_OUTPUT, "a timed call returned a wrong result"),
            failing_ranks=outcome.mismatch.ranks if outcome.mismatch else (),
        ),
    )
