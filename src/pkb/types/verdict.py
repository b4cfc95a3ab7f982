"""What the judge says about one candidate: one document, JSON all the way down."""

import json
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from pkb.types.difference import Mismatch
from pkb.types.failure import Failure, FailureKind
from pkb.types.profile import Profile
from pkb.types.race import RaceKind, RaceProof
from pkb.types.timing import Decision, Roofline, Timing

__all__ = [
    "SCHEMA_VERSION", "CandidateRef", "Communication", "Decision", "Evaluation", "Evidence", "Failure", "FailureKind",
    "Mismatch", "ProblemRef", "RaceKind", "RaceProof", "RankState", "Roofline", "Stage", "SuiteRef", "Timing", "Verdict",
]  # fmt: skip

SCHEMA_VERSION = 2
"""Version 1 had no kinds of a difference and of a failure, and an open `candidate` (`document_versions.py` reads both)."""


class Verdict(StrEnum):
    CORRECT = "correct"
    WRONG = "wrong"
    RACE = "race"
    REUSED_OUTPUT = "reused_output"
    DEADLOCK = "deadlock"
    COMPILE_ERROR = "compile_error"
    LOAD_ERROR = "load_error"
    RUNTIME_ERROR = "runtime_error"
    CRASH = "crash"
    REJECTED = "rejected"
    UNSUPPORTED = "unsupported"
    HARNESS_ERROR = "harness_error"

    @property
    def exit_status(self) -> int:
        """0: pass, 1: fail, 2: the judge could not say."""
        return {Verdict.CORRECT: 0, Verdict.HARNESS_ERROR: 2}.get(self, 1)

    @property
    def is_timed(self) -> bool:
        """Its times were taken by the rules and stand beside it; those of a rejected candidate are shown as its claim."""
        return self in (Verdict.CORRECT, Verdict.REUSED_OUTPUT)

    def exit_status_as(self, *, as_published: bool) -> int:
        """`as_published`: by the published protocol, which looks at a result before the next call."""
        return 0 if as_published and self is Verdict.REUSED_OUTPUT else self.exit_status


class Stage(StrEnum):
    INSPECT = "inspect"
    BUILD = "build"
    START = "start"
    CORRECTNESS = "correctness"
    RACES = "races"
    TIMING = "timing"
    PROFILE = "profile"
    DONE = "done"


class Communication(StrEnum):
    """What moved the data, observed while the candidate ran."""

    CUSTOM = "custom"
    LIBRARY = "library"
    NONE = "none"
    UNKNOWN = "unknown"


class Standing(StrEnum):
    """Whether a rank still does something."""

    FINISHED = "finished"
    WAITING = "waiting"
    RUNNING = "running"
    GONE = "gone"


@dataclass(frozen=True)
class RankState:
    """One rank at the moment the watchdog gave up."""

    rank: int
    state: Standing
    where: str = ""
    """Last thing it was seen doing: a symmetric-memory wait, a collective, the device, a line of the candidate."""
    stack: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProblemRef:
    id: int
    name: str
    version: int = 1
    baseline_version: int | None = None
    """None where the problem's baseline is its reference."""


@dataclass(frozen=True)
class SuiteRef:
    """What the verdict may be compared with (docs/suite.md)."""

    version: int
    judge: int
    """Version of the rules by which outputs are compared and times taken."""


@dataclass(frozen=True)
class CandidateRef:
    file: str
    """The file's name, without its folder."""
    sha256: str
    backend: str


@dataclass(frozen=True)
class Evidence:
    """What bears a verdict out, collected while a candidate is judged: its text, its run, the decision."""

    communication: Communication = Communication.UNKNOWN
    paths: tuple[str, ...] = ()
    failing_ranks: tuple[int, ...] = ()
    mismatch: Mismatch | None = None
    race_kind: RaceKind | None = None
    race_proof: RaceProof | None = None
    rank_states: tuple[RankState, ...] = ()
    failure: Failure | None = None
    timing: Timing | None = None
    profile: Profile | None = None
    hints: tuple[str, ...] = ()

    def plus(self, later: "Evidence") -> "Evidence":
        """With everything that the later says; it wins where both do."""
        said = {
            member.name: value for member in fields(later) if (value := getattr(later, member.name)) != member.default
        }
        return replace(self, **said)


@dataclass(frozen=True)
class Evaluation:
    """The verdict with everything that bears it out."""

    verdict: Verdict
    stage: Stage
    detail: str
    problem: ProblemRef
    candidate: CandidateRef
    platform: str
    hardware: str
    ranks: int
    size: str
    dtype: str
    plan: str
    communication: Communication = Communication.UNKNOWN
    paths: tuple[str, ...] = ()
    failing_ranks: tuple[int, ...] = ()
    mismatch: Mismatch | None = None
    race_kind: RaceKind | None = None
    race_proof: RaceProof | None = None
    """What recorded calls show of races, on an emulated GPU; None where nothing was recorded."""
    rank_states: tuple[RankState, ...] = ()
    failure: Failure | None = None
    timing: Timing | None = None
    profile: Profile | None = None
    """What the calls did on the device; None where there is no device or no profiler. `checks` says why."""
    hints: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    """What was checked, in words, and what was left out and why."""
    fidelity: dict[str, str] = field(default_factory=dict)
    """Instructions that ran on an emulated GPU: exact, approximate, or exact without the order that a GPU leaves open."""
    stage_seconds: dict[str, float] = field(default_factory=dict)
    isolation: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    output_tail: str = ""
    """The end of what the candidate printed."""
    started_at: str = ""
    suite: SuiteRef | None = None
    """None in documents that are older than the suite's first version."""
    schema: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        """A verdict that contradicts its evidence is a bug of the judge, caught where it is made."""
        if self.timing is not None and not self.verdict.is_timed and self.verdict is not Verdict.REJECTED:
            raise ValueError(f"a {self.verdict} candidate has no timing")
        if self.verdict in (Verdict.WRONG, Verdict.REUSED_OUTPUT) and self.mismatch is None:
            raise ValueError(f"a candidate that is {self.verdict} has a mismatch")
        if self.verdict is Verdict.RACE and not self.race_kind:
            raise ValueError("a race has a kind")
        if self.verdict is Verdict.DEADLOCK and not self.rank_states:
            raise ValueError("a deadlock names the state of every rank")

    def to_dict(self) -> dict[str, Any]:
        return {"schema": self.schema} | {k: v for k, v in asdict(self).items() if k != "schema"}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, default=str)
