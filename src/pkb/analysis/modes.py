"""Failure modes: the published categories, and ours beside them, as a pure function of a verdict's JSON.

The published study sorts every answer into seven bins. A verdict is finer where the judge saw more (race, rejected) and
coarser where it does not matter to the judge (a runtime_error is one whatever was raised). So most verdicts have a mode of
their own, and an exception is looked up in `RULES`: the first row whose kind and text both match decides.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from pkb.types.difference import DifferenceKind
from pkb.types.torch_versions import is_of_another_torch
from pkb.types.verdict import Verdict

TEXT_LIMIT = 4000
"""Characters of a message that are searched: a candidate may raise megabytes."""


class FailureMode(StrEnum):
    COMPILE = "compile"
    SHAPE = "shape"
    NAME = "name"
    RUNTIME = "runtime"
    MISMATCH = "mismatch"
    DEADLOCK = "deadlock"
    CORRECT = "correct"
    RACE = "race"
    REUSED_OUTPUT = "reused_output"
    REJECTED = "rejected"
    TORCH_VERSION = "torch_version"
    NO_ANSWER = "no_answer"
    UNSUPPORTED = "unsupported"
    HARNESS_ERROR = "harness_error"

    @property
    def words(self) -> str:
        return WORDS[self]

    @property
    def is_published(self) -> bool:
        """One of the seven bins of the published study."""
        return self in PUBLISHED

    @property
    def is_judged(self) -> bool:
        """False where the judge could not say: such a sample is nobody's failure and in no denominator."""
        return self not in NOT_JUDGED


PUBLISHED = (
    FailureMode.COMPILE, FailureMode.SHAPE, FailureMode.NAME, FailureMode.RUNTIME, FailureMode.MISMATCH,
    FailureMode.DEADLOCK, FailureMode.CORRECT,
)  # fmt: skip
NOT_JUDGED = frozenset({FailureMode.UNSUPPORTED, FailureMode.HARNESS_ERROR})
WORDS: Mapping[FailureMode, str] = {
    FailureMode.COMPILE: "compile or syntax",
    FailureMode.SHAPE: "tensor shape",
    FailureMode.NAME: "attribute or API name",
    FailureMode.RUNTIME: "run time",
    FailureMode.MISMATCH: "output mismatch",
    FailureMode.DEADLOCK: "deadlock",
    FailureMode.CORRECT: "correct",
    FailureMode.RACE: "race",
    FailureMode.REUSED_OUTPUT: "reused output",
    FailureMode.REJECTED: "rejected",
    FailureMode.TORCH_VERSION: "another torch version",
    FailureMode.NO_ANSWER: "no answer",
    FailureMode.UNSUPPORTED: "unsupported",
    FailureMode.HARNESS_ERROR: "harness error",
}

# Verdicts that are a mode by themselves; `wrong`, `load_error` and `runtime_error` are looked at more closely.
BY_VERDICT: Mapping[Verdict, FailureMode] = {
    Verdict.CORRECT: FailureMode.CORRECT,
    Verdict.RACE: FailureMode.RACE,
    Verdict.REUSED_OUTPUT: FailureMode.REUSED_OUTPUT,
    Verdict.DEADLOCK: FailureMode.DEADLOCK,
    Verdict.COMPILE_ERROR: FailureMode.COMPILE,
    Verdict.CRASH: FailureMode.RUNTIME,
    Verdict.REJECTED: FailureMode.REJECTED,
    Verdict.UNSUPPORTED: FailureMode.UNSUPPORTED,
    Verdict.HARNESS_ERROR: FailureMode.HARNESS_ERROR,
}


class Rule(NamedTuple):
    mode: FailureMode
    kinds: str
    """Pattern for the whole name of the exception's type."""
    text: str
    """Pattern searched in the message, case ignored; empty matches all."""
    why: str
    trace: str = ""
    """Pattern searched in the last source line of the trace; empty matches all."""


_ANY = r".*"
_PLAIN = r"RuntimeError|ValueError|IndexError|AssertionError|OpCheckError"

RULES: tuple[Rule, ...] = (
    Rule(
        FailureMode.COMPILE,
        r"SyntaxError|IndentationError|TabError|CompileError|CompilationError|CompileTimeAssertionFailure"
        r"|UnsupportedLanguageConstruct|PTXASError|NVRTCError",
        "",
        "Python's, Triton's or CUDA's compiler refused the text, also when it was asked only while running",
    ),
    Rule(
        FailureMode.COMPILE,
        _ANY,
        r"error building extension|ninja: build stopped|nvrtc_error_compilation|(?:ptxas|nvcc|nvlink) (?:fatal|error)"
        r"|\(\d+\): error\b",
        "a build inside the call or the import: torch's extension loader wraps the compiler's words in a RuntimeError",
    ),
    Rule(
        FailureMode.COMPILE,
        r"ImportError|OSError",
        r"undefined symbol",
        "a library that was not linked to what it needs",
    ),
    Rule(
        FailureMode.DEADLOCK,
        r"RuntimeError|TimeoutError|Dist\w*Error",
        r"timed out (?:after|waiting)|collective operation timeout|wait timeout|barrier.{0,40}time(?:d )?out",
        "a wait that gave up by itself instead of hanging",
    ),
    Rule(
        FailureMode.NAME,
        r"AttributeError|NameError|UnboundLocalError|ImportError|ModuleNotFoundError|MissingSolution",
        "",
        "a name that does not exist",
    ),
    Rule(
        FailureMode.NAME,
        r"TypeError",
        r"unexpected keyword|required (?:positional|keyword)|positional arguments? but|takes no arguments"
        r"|missing (?:a )?required|multiple values for|invalid combination of arguments|incompatible function arguments"
        r"|not callable|argument '\w+'.* must be|invalid keyword argument",
        "a function that exists is called in a way it does not know",
    ),
    Rule(
        FailureMode.NAME,
        r"RuntimeError|NotImplementedError",
        r"failed to match any schema|no such operator|unknown builtin op|could not find schema"
        r"|expected at most \d+ argument",
        "an operator of torch.ops that does not exist, or not with these arguments",
    ),
    Rule(
        FailureMode.SHAPE,
        _PLAIN,
        r"\bshapes?\b|\bsize of tensor\b|size mismatch|sizes? (?:of tensors )?must match|tensor sizes? must"
        r"|must match the existing size|view size is not compatible|invalid for input of size|number of (?:dimensions|sizes)"
        r"|dimension out of range|too many indices|equal size|expected size|split_sizes|exceeds dimension size"
        r"|inconsistent tensor size|out of bounds for storage|must be a \d-?d tensor|batch_size|weight of size"
        r"|multiply up to the size|does not broadcast|could not be broadcast|same number of elements"
        r"|tensor size must be equal to world|divisible",
        "extents that do not fit together, as torch, numpy and the collectives say it",
    ),
    Rule(
        FailureMode.SHAPE,
        r"ValueError",
        r"values to unpack",
        "a shape taken apart into the wrong number of names",
        trace=r"\.shape\b|\.size\(",
    ),
)


def failure_mode(evaluation: Mapping[str, Any]) -> FailureMode:
    """The mode of one verdict. Raises ValueError for a verdict that does not exist."""
    verdict = Verdict(evaluation["verdict"])
    if verdict in BY_VERDICT:
        return BY_VERDICT[verdict]
    if verdict is Verdict.WRONG:
        # dtype and structure stay with the values: the published study has no bin for them.
        difference = _text(part_of(evaluation, "mismatch"), "difference")
        return FailureMode.SHAPE if difference == DifferenceKind.SHAPE else FailureMode.MISMATCH
    failure = part_of(evaluation, "failure")
    if not failure:  # load_error found by reading: no function called solution
        return FailureMode.NAME if verdict is Verdict.LOAD_ERROR else FailureMode.RUNTIME
    return mode_of_exception(_text(failure, "name"), _text(failure, "message"), _text(failure, "trace"))


def mode_of_exception(kind: str, message: str, trace: str = "") -> FailureMode:
    """The first row of `RULES` that fits, or run time."""
    if is_of_another_torch(kind, message[:TEXT_LIMIT]):
        return FailureMode.TORCH_VERSION
    source_lines = [line for line in trace.splitlines() if line.strip(" ^~")]  # Python underlines the culprit
    last_line = source_lines[-1] if source_lines else ""
    text = message[:TEXT_LIMIT]
    for rule in RULES:
        if (
            re.fullmatch(rule.kinds, kind)
            and re.search(rule.text, text, re.IGNORECASE)
            and re.search(rule.trace, last_line)
        ):
            return rule.mode
    return FailureMode.RUNTIME


def part_of(evaluation: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = evaluation.get(name)
    return value if isinstance(value, Mapping) else {}


def _text(part: Mapping[str, Any], name: str) -> str:
    value = part.get(name)
    return value if isinstance(value, str) else ""
