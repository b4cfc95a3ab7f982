"""How long a candidate and the reference took, and how near that is to the hardware's limit."""

from dataclasses import dataclass
from enum import StrEnum


class Decision(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    """The interval holds 1."""
    UNPROVEN = "unproven"
    """Faster by the ranks' clocks, by too little for the judge's own to confirm."""


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
