"""An error, crash or broken rule: its kind, which programs look up, and the words that people read."""

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """What went wrong. Hints and readers of verdicts look this up; no sentence is searched for it."""

    EXCEPTION = "exception"
    """A rank raised; `name` is the exception's type."""
    DEVICE_FAULT = "device_fault"
    """A kernel faulted; `name` is the exception by which torch said so."""
    EXIT = "exit"
    """A rank called exit in the middle of a call."""
    NO_SOLUTION = "no_solution"
    LACKING = "lacking"
    """The candidate asked for what the platform does not have."""
    PROCESS_ENDED = "process_ended"
    MEMORY_LIMIT = "memory_limit"
    PROCESS_LIMIT = "process_limit"
    TIME_LIMIT = "time_limit"
    """Idle, in all, for longer than an evaluation waits outside of calls; a call that does not end is a deadlock."""
    OUTPUT_LIMIT = "output_limit"
    """Printed more than an evaluation reads."""
    SYNTAX = "syntax"
    COMPILER = "compiler"
    """`name` says what was built: a cubin, a C++ extension."""
    COMPILER_OPTION = "compiler_option"
    """An option that candidates may not use."""
    BUILD_LIMIT = "build_limit"
    STATIC_RULE = "static_rule"
    """The source breaks the rule called `name`."""
    CHANGED_ARGUMENTS = "changed_arguments"
    ALIASED_OUTPUT = "aliased_output"
    BAD_OUTPUT = "bad_output"
    """A result that cannot be compared: no plain tensors."""
    MALFORMED_REPORT = "malformed_report"
    CLOCK = "clock"
    LATE_OUTPUT = "late_output"
    TIMED_OUTPUT = "timed_output"
    HIDDEN_WORK = "hidden_work"
    FLOOR = "floor"
    BASELINE = "baseline"
    """The problem's own baseline fails the comparison: an error of the problem."""
    HARNESS = "harness"
    """Our own side failed; `name` says how."""


READ_FROM_THE_TOP = frozenset({FailureKind.COMPILER})
"""A compiler's first error causes the others; a traceback's last lines say what happened."""


class Cause(StrEnum):
    """Where an exception in a rank came from, found by its class and its frames and never by its text.

    It is part of a rank's report, so the judge holds it against what the platform can have caused: without a GPU nothing
    faults on a device, and what the platform offers is not lacking.
    """

    CANDIDATE = "candidate"
    """The candidate's code, or a library that it called."""
    COMPILER = "compiler"
    """The kit's compiler refused a source."""
    OPTION = "option"
    """The kit refused a compiler option."""
    DEVICE = "device"
    """torch found the device in an error state."""
    EXIT = "exit"
    NO_SOLUTION = "no_solution"
    LACKS_CUDA = "lacks_cuda"
    LACKS_MULTICAST = "lacks_multicast"
    LACKS_INLINE_ASSEMBLY = "lacks_inline_assembly"
    NOT_EMULATED = "not_emulated"
    """CUDA on a CPU: an instruction or a function that the emulated GPU does not know."""


class NotOnThisPlatform(RuntimeError):
    """Raised by our own code where a candidate asks for what the platform does not have."""

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True)
class Failure:
    kind: FailureKind
    message: str
    rank: int | None = None
    trace: str = ""
    name: str = ""
    """The exception's type, the rule, the compiler: what a kind leaves open."""

    @property
    def title(self) -> str:
        return self.name or self.kind.replace("_", " ")
