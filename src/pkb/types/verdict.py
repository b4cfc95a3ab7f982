"""What the judge says about one candidate: one document, JSON all the way down."""

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from pkb.types.profile import Profile

SCHEMA_VERSION = 1


class Verdict(StrEnum):
    CORRECT = "correct"
    WRONG = "wrong"
    RACE = "race"
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
        """0 said yes, 1 said no, 2 could not say."""
        return {Verdict.CORRECT: 0, Verdict.HARNESS_ERROR: 2}.get(self, 1)


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


@dataclass(frozen=True)
class Mismatch:
    """Where and how an output differs, as a person would be told: never the expected values of a whole tensor."""

    case: str
    """The case in words: size, ranks, trial."""
    ranks: tuple[int, ...]
    rank: int
    """The rank whose difference is described below."""
    output: str
    what: str
    """One sentence: structure, dtype, shape or values."""
    pattern: str = ""
    """What the difference looks like: one rank only, stale data, NaN, a shard boundary, a constant factor."""
    error_ratio: float | None = None
    """Error over tolerance; 1 would just pass. None when infinite or not a matter of values."""
    first_index: tuple[int, ...] | None = None
    first_got: float | str | None = None
    first_expected: float | str | None = None
    differing_fraction: float | None = None
    regions: tuple[tuple[str, float], ...] = ()
    """Where along the first axis the differing elements lie: (name of the part, share of it that differs)."""


@dataclass(frozen=True)
class RankState:
    """One rank at the moment the watchdog gave up."""

    rank: int
    state: str
    """`finished`, `waiting`, `running` or `gone`."""
    where: str = ""
    """Last thing it was seen doing: a symmetric-memory wait, a collective, the device, a line of the candidate."""
    stack: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """An error, crash or broken rule."""

    kind: str
    """Exception type, signal name or name of the rule."""
    message: str
    rank: int | None = None
    trace: str = ""


@dataclass(frozen=True)
class Roofline:
    """How near the times are to the hardware's limit. Utilisation is the ideal limit over the time: 1 would be perfect."""

    hardware: str
    """The machine whose ceilings were taken: `h100x8`, `h200-shared`."""
    origin: str
    """Where its figures are from: `datasheet` or `measured`."""
    binds: str
    """The resource that sets the limit: `compute`, `hbm`, `link`, or `latency` where that is more than any of them."""
    ideal_us: float
    """Perfect overlap at datasheet rates: no kernel is faster."""
    reachable_us: float
    """Perfect overlap at the rates that the best kernels reach."""
    unoverlapped_us: float
    """Compute, memory and link one after the other, at datasheet rates."""
    latency_us: float
    """One launch and the dependent steps between GPUs; no part of the limits above."""
    reference_utilisation: float | None
    candidate_utilisation: float | None


@dataclass(frozen=True)
class Timing:
    """Times in microseconds; a call's time is the latest end minus the earliest start over all ranks."""

    reference_us: float
    candidate_us: float
    speedup: float
    speedup_low: float
    speedup_high: float
    """Bootstrap interval of the ratio of medians, 95 %."""
    decision: str
    """`faster`, `slower`, `same` (the interval holds 1) or `unproven` (faster by the ranks' clocks, by too little for the
    judge's own to confirm)."""
    calls: int
    rounds: int
    reference_p10_us: float
    reference_p90_us: float
    candidate_p10_us: float
    candidate_p90_us: float
    floor_us: float | None
    """No kernel on this hardware can be faster; None where the platform has no known peaks."""
    reference_wall_us: float
    candidate_wall_us: float
    """Per call, of calls queued back to back, on the judge's own clock: host and device together. Undisturbed rounds, less
    what an empty batch costs (docs/measuring.md)."""
    clock_agreement: str
    """What the judge's clock says to the times that the ranks reported."""
    first_call_us: float | None
    reference_samples_us: tuple[tuple[float, ...], ...] = ()
    candidate_samples_us: tuple[tuple[float, ...], ...] = ()
    reference_walls_us: tuple[float, ...] = ()
    candidate_walls_us: tuple[float, ...] = ()
    """By round, what an empty batch costs included; more than `rounds` where rounds were made again or a candidate was
    measured again."""
    empty_walls_us: tuple[float, ...] = ()
    """What an empty batch costs, per call of a full one; several by round."""
    note: str = ""
    roofline: Roofline | None = None
    """None where nothing is known of the hardware, and for times that are not believed."""
    reference_alg_gbps: float | None = None
    candidate_alg_gbps: float | None = None
    reference_bus_gbps: float | None = None
    candidate_bus_gbps: float | None = None
    """algBW and busBW as nccl-tests defines them, from the medians; None where no data moves (docs/measuring.md)."""


@dataclass(frozen=True)
class Evaluation:
    """The verdict with everything that bears it out."""

    verdict: Verdict
    stage: Stage
    detail: str
    problem: dict[str, Any]
    candidate: dict[str, Any]
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
    race_kind: str | None = None
    rank_states: tuple[RankState, ...] = ()
    failure: Failure | None = None
    timing: Timing | None = None
    profile: Profile | None = None
    """What the calls did on the device; None where there is no device or no profiler. `checks` says why."""
    hints: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    """What was checked, in words, and what was left out and why."""
    stage_seconds: dict[str, float] = field(default_factory=dict)
    isolation: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    output_tail: str = ""
    """The end of what the candidate printed."""
    started_at: str = ""
    schema: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        """A verdict that contradicts its evidence is a bug of the judge, caught where it is made."""
        if self.timing is not None and self.verdict not in (Verdict.CORRECT, Verdict.REJECTED):
            raise ValueError(f"a {self.verdict} candidate has no timing")
        if self.verdict is Verdict.WRONG and self.mismatch is None:
            raise ValueError("a wrong candidate has a mismatch")
        if self.verdict is Verdict.RACE and not self.race_kind:
            raise ValueError("a race has a kind")
        if self.verdict is Verdict.DEADLOCK and not self.rank_states:
            raise ValueError("a deadlock names the state of every rank")

    def to_dict(self) -> dict[str, Any]:
        return {"schema": self.schema} | {k: v for k, v in asdict(self).items() if k != "schema"}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, default=str)
