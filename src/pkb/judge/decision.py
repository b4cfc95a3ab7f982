"""A verdict reached before the last stage: raised, so that no stage has to hand it through."""

from dataclasses import dataclass, field
from typing import Any

from pkb.judge.crew.failure import CrewFailure, CrewFailureKind
from pkb.types.verdict import Failure, Stage, Verdict

UNSUPPORTED_MARKS = {
    "inline_asm_elementwise": "inline assembly, which Triton's interpreter cannot run",
    "no multicast": "in-switch multicast",
    "Torch not compiled with CUDA enabled": "a CUDA device",
    "Found no NVIDIA driver": "a CUDA device",
    "no CUDA-capable device": "a CUDA device",
    "No CUDA GPUs are available": "a CUDA device",
    "needs a CUDA device": "a CUDA device",
}


@dataclass
class Decided(Exception):
    verdict: Verdict
    stage: Stage
    detail: str
    evidence: dict[str, Any] = field(default_factory=dict)
    """Further fields of the `Evaluation`."""

    def __str__(self) -> str:
        return f"{self.verdict} in {self.stage}: {self.detail}"


def from_failure(failure: CrewFailure, stage: Stage, *, on_gpu: bool) -> Decided:
    """What a failing candidate side means.

    Classified from structured state. Text of an exception counts only where torch, Triton or the kit raised it: what a
    candidate raises itself is its own error, whatever it says.
    """
    ranks = tuple(failure.ranks)
    evidence: dict[str, Any] = {"failing_ranks": ranks, "rank_states": failure.states}
    if failure.kind is CrewFailureKind.TIMEOUT:
        stuck = ", ".join(map(str, failure.ranks))
        who = f"ranks {stuck}" if len(failure.ranks) > 1 else f"rank {stuck}"
        return Decided(Verdict.DEADLOCK, stage, f"{who} did not finish: {failure.detail}", evidence)
    if failure.kind is CrewFailureKind.GONE:
        evidence["failure"] = Failure("process ended", failure.detail, rank=failure.ranks[0])
        return Decided(Verdict.CRASH, stage, failure.detail, evidence)
    if failure.kind is CrewFailureKind.LIMIT:
        evidence["failure"] = Failure(f"{failure.limit} limit", failure.detail)
        return Decided(Verdict.CRASH, stage, f"stopped by the judge: {failure.detail}", evidence)
    if failure.kind is CrewFailureKind.GARBAGE:
        evidence["failure"] = Failure("malformed report", failure.detail, rank=failure.ranks[0])
        return Decided(
            Verdict.REJECTED, stage, f"rank {failure.ranks[0]} sent a malformed report: {failure.detail}", evidence
        )
    return _from_exception(failure, stage, evidence, on_gpu=on_gpu)


def _from_exception(failure: CrewFailure, stage: Stage, evidence: dict[str, Any], *, on_gpu: bool) -> Decided:
    error, rank = failure.error, failure.rank
    assert error is not None
    kind, message = error.type, error.message
    evidence["failure"] = Failure(kind, message, rank=rank, trace=error.trace)
    first_line = message.strip().splitlines()[0] if message.strip() else ""
    text = f"rank {rank} raised {kind}: {first_line}" if first_line else f"rank {rank} raised {kind}"
    if error.compiler:
        return Decided(Verdict.COMPILE_ERROR, Stage.BUILD, f"does not compile: {first_line}", evidence)
    if not on_gpu and error.origin == "library":
        for mark, missing in UNSUPPORTED_MARKS.items():
            if mark in message:
                return Decided(Verdict.UNSUPPORTED, stage, f"the cpu platform has no {missing}", evidence)
    if stage is Stage.START:
        if kind == "MissingSolution":
            return Decided(Verdict.LOAD_ERROR, stage, "the file defines no function called solution", evidence)
        return Decided(Verdict.LOAD_ERROR, stage, f"importing the candidate failed: {text}", evidence)
    if kind in ("AcceleratorError", "CudaError") or ("CUDA error: " in message and "illegal" in message):
        return Decided(Verdict.CRASH, stage, f"a kernel faulted on the device; {text}", evidence)
    if kind == "SystemExit":
        return Decided(Verdict.CRASH, stage, f"rank {rank} called exit in the middle of a call", evidence)
    return Decided(Verdict.RUNTIME_ERROR, stage, text, evidence)
