"""A rank says itself where an exception came from: the judge believes it only what its platform can have caused."""

import pytest

from pkb.judge.crew.failure import CrewFailure, CrewFailureKind
from pkb.judge.decision import from_failure
from pkb.platforms.base import PlatformFacts
from pkb.types.failure import Cause
from pkb.types.protocol.replies import ErrorReport
from pkb.types.verdict import Stage, Verdict

CPU, GPU, NVLS = ("torch",), ("torch", "cuda"), ("torch", "cuda", "multicast")


@pytest.mark.parametrize(
    ("cause", "offered", "verdict"),
    [
        (Cause.DEVICE, GPU, Verdict.CRASH),
        (Cause.DEVICE, CPU, Verdict.RUNTIME_ERROR),
        (Cause.LACKS_MULTICAST, GPU, Verdict.UNSUPPORTED),
        (Cause.LACKS_MULTICAST, NVLS, Verdict.RUNTIME_ERROR),
        (Cause.LACKS_CUDA, CPU, Verdict.UNSUPPORTED),
        (Cause.LACKS_CUDA, GPU, Verdict.RUNTIME_ERROR),
        (Cause.LACKS_INLINE_ASSEMBLY, GPU, Verdict.RUNTIME_ERROR),
        (Cause.NOT_EMULATED, CPU, Verdict.UNSUPPORTED),
        (Cause.NOT_EMULATED, GPU, Verdict.RUNTIME_ERROR),
    ],
)
def test_nothing_lacks_that_is_there_and_no_device_faults_that_is_not(
    cause: Cause, offered: tuple[str, ...], verdict: Verdict
) -> None:
    error = ErrorReport("RuntimeError", "what it says decides nothing", "", None, cause, 0)
    failure = CrewFailure(CrewFailureKind.RAISED, [1], "raised", role="candidate", error=error)
    assert from_failure(failure, Stage.CORRECTNESS, PlatformFacts("any", True, capabilities=offered)).verdict is verdict
