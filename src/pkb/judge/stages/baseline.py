"""Is the problem's own baseline correct? Checked before its times are taken, and again afterwards."""

from collections.abc import Mapping
from dataclasses import replace

from pkb.judge.crew.failure import CrewFailure
from pkb.judge.decision import Decided
from pkb.judge.exchange import Exchange
from pkb.judge.stages.correctness import bits_mismatch
from pkb.judge.worlds import out_of_memory
from pkb.problems.compiled import NotCompiled
from pkb.types.failure import Cause
from pkb.types.protocol.commands import DrawSpec
from pkb.types.protocol.replies import Comparison
from pkb.types.verdict import Evidence, Failure, FailureKind, Stage, Verdict

CALLS = 2
"""In a row: the second shows what it does to the first one's result."""


def check_baseline(exchange: Exchange, spec: DrawSpec, *, kinds: Mapping[str, float], same_bits: bool) -> None:
    """Checks each kind of calls separately, by the problem's own tolerance whatever the plan's is. If the baseline fails, the
    verdict is a harness error: no candidate is to blame."""
    for kind in kinds or ("",):
        own = replace(spec, kind=kind, upstream=False)
        try:
            results = exchange.check_baseline(own, exchange.new_slots(CALLS))
        except CrewFailure as failure:
            if not _its_own(failure):
                raise
            raise _faulty(spec, failure.detail, trace=failure.trace) from failure
        if why := what_is_wrong(results, same_bits=same_bits):
            raise _faulty(spec, f"{why} ({kind})" if kind else why)
    exchange.drop_drawn()


def what_is_wrong(results: Mapping[int, Comparison], *, same_bits: bool) -> str:
    """The reason in words; empty if nothing is wrong."""
    for rank, result in results.items():
        if result.difference is not None:
            ratio = f", error {result.ratio:.2g} of the tolerance" if result.ratio is not None else ""
            return f"rank {rank}: {result.difference.output}: {result.difference.what}{ratio}"
    digests = {(0, rank): result.digest for rank, result in results.items()}
    if same_bits and (mismatch := bits_mismatch(digests, words="")):
        return f"rank {mismatch.rank}: {mismatch.output}: {mismatch.what}"
    return ""


def _its_own(failure: CrewFailure) -> bool:
    """An exception of the baseline's. A device that faults, or has no memory left, may be the candidate's doing; a compiler
    that fails is the machine's."""
    said = failure.error
    if said is None or said.type == NotCompiled.__name__:
        return False
    return said.cause is Cause.CANDIDATE and not out_of_memory(failure)


def _faulty(spec: DrawSpec, why: str, *, trace: str = "") -> Decided:
    return Decided(
        Verdict.HARNESS_ERROR,
        Stage.TIMING,
        f"the baseline of problem {spec.problem} is at fault, not the candidate: {why}",
        Evidence(failure=Failure(FailureKind.BASELINE, why, trace=trace)),
    )
