"""How long a candidate and what it is timed against took, and how near that is to the hardware's limit."""

from dataclasses import dataclass, field
from enum import StrEnum

from pkb.types.stock import Against


class Decision(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    """The 95 % interval includes 1."""
    UNPROVEN = "unproven"
    """Faster by the ranks' clocks, and the host wall clock does not confirm it, or there was no time for the further starts
    that it takes."""


def tells_speed(platform: str) -> bool:
    """Whether a time taken there says anything about a kernel's speed. On a CPU it does not: nothing is called faster there,
    and nothing is timed unless somebody asks."""
    return platform != "cpu"


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
class KindSpeedup:
    """Of one kind of calls, where a problem has several."""

    weight: float
    reference_us: float
    candidate_us: float
    """Medians."""
    speedup: float
    speedup_low: float
    speedup_high: float


@dataclass(frozen=True)
class OtherReading:
    """The candidate against the other of the problem's two functions, by way of the one that it was timed against: rounds in
    which those two alternate (docs/measuring.md)."""

    against: Against
    us: float
    """What a call of it takes: the median; with several kinds of calls, the weighted mean of each kind's."""
    speedup: float
    speedup_low: float
    speedup_high: float
    """95 % interval, with that of `Timing.speedup` in it."""
    decision: Decision
    calls: int
    rounds: int
    samples_us: tuple[tuple[float, ...], ...] = ()
    paired_samples_us: tuple[tuple[float, ...], ...] = ()
    """Of the function of `Timing.against`, on the same arguments."""
    sample_kinds: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Timing:
    """Times in microseconds; a call's time is the largest over all ranks of a rank's own end minus its own start.

    What is called the reference's is that of the function of `against`.
    """

    reference_us: float
    candidate_us: float
    """Medians; with several kinds of calls, the weighted mean of each kind's."""
    speedup: float
    speedup_low: float
    speedup_high: float
    """95 % interval; of the weighted mean over kinds of the median log ratio of paired calls (docs/measuring.md)."""
    decision: Decision
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
    """Per call, of calls queued back to back, on the host wall clock: host and device together. Uncontended rounds, less
    what an empty batch costs (docs/measuring.md)."""
    clock_agreement: str
    """What the host wall clock says to the times that the ranks reported."""
    first_call_us: float | None
    reference_samples_us: tuple[tuple[float, ...], ...] = ()
    candidate_samples_us: tuple[tuple[float, ...], ...] = ()
    reference_walls_us: tuple[float, ...] = ()
    """As many by round as there are empty ones."""
    candidate_walls_us: tuple[float, ...] = ()
    """By round, what an empty batch costs included; more than `rounds` where rounds were made again or a candidate was
    measured again."""
    empty_walls_us: tuple[float, ...] = ()
    """What an empty batch costs, per call of a full one; one or several by round."""
    note: str = ""
    roofline: Roofline | None = None
    """None where nothing is known of the hardware, and for times that are not believed."""
    reference_alg_gbps: float | None = None
    candidate_alg_gbps: float | None = None
    reference_bus_gbps: float | None = None
    candidate_bus_gbps: float | None = None
    """algBW and busBW as nccl-tests defines them, from the medians; None where no data moves (docs/measuring.md)."""
    speedup_by_kind: dict[str, KindSpeedup] = field(default_factory=dict)
    """Empty where all calls are of one kind."""
    sample_kinds: tuple[tuple[str, ...], ...] = ()
    """Of the samples, by round; empty where all calls are of one kind."""
    window_speedup: float | None = None
    window_speedup_low: float | None = None
    window_speedup_high: float | None = None
    """The ratio on the host wall clock, less what an empty batch costs, with its interval; None for a ratio without bound:
    nothing is left of the candidate's time."""
    clock_drift_ppm: float | None = None
    """By how much the clocks of two ranks' devices run apart, at most; None where that is not seen, as with one rank, with one
    call a round, or on one GPU. Nothing depends on it."""
    against: Against = "reference"
    """What the candidate was timed against, and what `speedup` and `decision` are about: the problem's baseline or its
    reference. `reference` where the problem has one function for both."""
    start_rounds: tuple[int, ...] = ()
    """Of the rounds, in order, how many each start of the ranks has; empty where there was one. With several, the interval is
    Student's over starts."""
    other: OtherReading | None = None
    """None where the problem has one function for both, and where the other could not be timed: then `checks` says why."""
