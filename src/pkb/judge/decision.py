"""A verdict reached before the last stage: raised, so that no stage has to hand it through."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pkb.judge.crew.failure import CrewFailure, CrewFailureKind
from pkb.platforms.base import PlatformFacts
from pkb.types.difference import Mismatch, rank_words
from pkb.types.failure import Cause
from pkb.types.verdict import Evidence, Failure, FailureKind, Stage, Verdict


class Lack(NamedTuple):
    capability: str
    words: str


LACKS: Mapping[Cause, Lack] = {
    Cause.LACKS_CUDA: Lack("cuda", "no CUDA device"),
    Cause.LACKS_MULTICAST: Lack("multicast", "no in-switch multicast"),
    Cause.LACKS_INLINE_ASSEMBLY: Lack("cuda", "no inline assembly: Triton's interpreter cannot run it"),
    Cause.NOT_EMULATED: Lack("cuda", "an emulated GPU only"),
}


@dataclass
class Decided(Exception):
    verdict: Verdict
    stage: Stage
    detail: str
    evidence: Evidence = field(default_factory=Evidence)

    def __str__(self) -> str:
        return f"{self.verdict} in {self.stage}: {self.detail}"


def from_failure(failure: CrewFailure, stage: Stage, facts: PlatformFacts) -> Decided:
    """What a failure of the candidate's side means. It is classified by what the judge observed itself (silence, a process
    that ended, a limit) and by the cause that the rank gives for an exception, if the platform can have caused that. The
    text of an exception is shown and decides nothing."""
    evidence = Evidence(failing_ranks=tuple(failure.ranks), rank_states=failure.states)
    if failure.kind is CrewFailureKind.TIMEOUT:
        who = rank_words(tuple(failure.ranks))
        return Decided(Verdict.DEADLOCK, stage, f"{who} did not finish: {failure.detail}", evidence)
    if failure.kind is CrewFailureKind.GONE:
        found = Failure(FailureKind.PROCESS_ENDED, failure.detail, rank=failure.ranks[0])
        return Decided(Verdict.CRASH, stage, failure.detail, replace(evidence, failure=found))
    if failure.kind is CrewFailureKind.LIMIT:
        evidence = replace(evidence, failure=Failure(LIMITS[failure.limit], failure.detail))
        return Decided(Verdict.CRASH, stage, f"stopped by the judge: {failure.detail}", evidence)
    if failure.kind is CrewFailureKind.GARBAGE:
        rank = failure.ranks[0]
        found = Failure(FailureKind.MALFORMED_REPORT, failure.detail, rank=rank)
        detail = f"rank {rank} sent a malformed report: {failure.detail}"
        return Decided(Verdict.REJECTED, stage, detail, replace(evidence, failure=found))
    return _from_exception(failure, stage, evidence, facts)


def bad_output(what: str, stage: Stage) -> Decided:
    """A result that cannot be compared is never correct."""
    evidence = Evidence(failure=Failure(FailureKind.BAD_OUTPUT, what))
    return Decided(Verdict.REJECTED, stage, f"an output is {what}; plain tensors are expected", evidence)


def wrong(mismatch: Mismatch, stage: Stage) -> Decided:
    return Decided(
        Verdict.WRONG,
        stage,
        f"{rank_words(mismatch.ranks)}: {mismatch.output}: {mismatch.what} ({mismatch.case})",
        Evidence(mismatch=mismatch, failing_ranks=mismatch.ranks),
    )


def reused_output(mismatch: Mismatch) -> Decided:
    """Correct and free of races, as long as nobody reads a result after the next call."""
    detail = f"{mismatch.output} on {rank_words(mismatch.ranks)} is overwritten by a later call: they share memory"
    return Decided(
        Verdict.REUSED_OUTPUT, Stage.RACES, detail, Evidence(mismatch=mismatch, failing_ranks=mismatch.ranks)
    )


def said_at(decided: Decided, where: str) -> Decided:
    """With a size and a number of ranks other than those that were asked for: its own words speak as if they were those."""
    return decided if where in decided.detail else replace(decided, detail=f"{decided.detail} ({where})")


@contextlib.contextmanager
def saying_where(where: str) -> Iterator[None]:
    try:
        yield
    except Decided as decided:
        raise said_at(decided, where) from decided


def harness_failure(failure: CrewFailure) -> Failure:
    """A failure of our own side."""
    return Failure(FailureKind.HARNESS, failure.detail, trace=failure.trace, name=str(failure.kind))


def _from_exception(failure: CrewFailure, stage: Stage, evidence: Evidence, facts: PlatformFacts) -> Decided:
    error, rank = failure.error, failure.rank
    assert error is not None
    cause = _possible(error.cause, facts)
    kind = KINDS.get(cause, FailureKind.EXCEPTION)
    evidence = replace(evidence, failure=Failure(kind, error.message, rank, error.trace, error.type))
    first_line = next(iter(error.message.strip().splitlines()), "")
    text = f"rank {rank} raised {error.type}: {first_line}" if first_line else f"rank {rank} raised {error.type}"
    if cause is Cause.OPTION:
        return Decided(Verdict.REJECTED, Stage.BUILD, first_line, evidence)
    if cause is Cause.COMPILER:
        return Decided(Verdict.COMPILE_ERROR, Stage.BUILD, f"does not compile: {first_line}", evidence)
    if cause in LACKS:
        detail = f"the {facts.name} platform has {LACKS[cause].words}"
        if cause is Cause.NOT_EMULATED:
            detail += f", and this is {first_line}"
        return Decided(Verdict.UNSUPPORTED, stage, detail, evidence)
    if stage is Stage.START:
        if cause is Cause.NO_SOLUTION:
            return Decided(Verdict.LOAD_ERROR, stage, "the file defines no function called solution", evidence)
        return Decided(Verdict.LOAD_ERROR, stage, f"importing the candidate failed: {text}", evidence)
    if cause is Cause.DEVICE:
        return Decided(Verdict.CRASH, stage, f"a kernel faulted on the device; {text}", evidence)
    if cause is Cause.EXIT:
        return Decided(Verdict.CRASH, stage, f"rank {rank} called exit in the middle of a call", evidence)
    return Decided(Verdict.RUNTIME_ERROR, stage, text, evidence)


LIMITS: Mapping[str, FailureKind] = {
    "memory": FailureKind.MEMORY_LIMIT,
    "process": FailureKind.PROCESS_LIMIT,
    "time": FailureKind.TIME_LIMIT,
    "output": FailureKind.OUTPUT_LIMIT,
}
KINDS: Mapping[Cause, FailureKind] = {
    Cause.COMPILER: FailureKind.COMPILER,
    Cause.OPTION: FailureKind.COMPILER_OPTION,
    Cause.DEVICE: FailureKind.DEVICE_FAULT,
    Cause.EXIT: FailureKind.EXIT,
    Cause.NO_SOLUTION: FailureKind.NO_SOLUTION,
    **dict.fromkeys(LACKS, FailureKind.LACKING),
}


def _possible(cause: Cause, facts: PlatformFacts) -> Cause:
    """The cause that a rank claims, if this platform can have it: one with no GPU has no device that faults, and nothing
    is missing that the platform offers. Else the candidate's own."""
    if cause is Cause.DEVICE and "cuda" not in facts.capabilities:
        return Cause.CANDIDATE
    if cause in LACKS and LACKS[cause].capability in facts.capabilities:
        return Cause.CANDIDATE
    return cause
