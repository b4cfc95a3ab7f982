"""What a side's calls did on the device, as the profiler saw it. Descriptive: nothing of it decides a verdict.

`compute` means everything that is not communication, local copies and fills included: communication hides under any of it.
"""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a record on the device was for."""

    COMMUNICATION = "communication"
    COMPUTE = "compute"
    FUSED = "fused"
    """A kernel that moves data between ranks and computes as well: no profiler sees the two apart."""


@dataclass(frozen=True)
class KernelUse:
    """All records of one name on all ranks."""

    name: str
    kind: str
    """`kernel`, `memcpy` or `memset`."""
    role: Role
    per_call: float
    """How many per rank and call."""
    us_per_call: float


@dataclass(frozen=True)
class ObservedPath:
    """A way by which data moved, with what shows it."""

    path: str
    """`copy_engine`, `sm_load_store`, `tma`, `nvls` or `library`."""
    evidence: str


@dataclass(frozen=True)
class RankProfile:
    """One rank; times are microseconds a call, each the length of a union of intervals."""

    rank: int
    kernels_per_call: float
    copies_per_call: float
    fills_per_call: float
    busy_us: float
    communication_us: float
    compute_us: float
    fused_us: float
    hidden_us: float
    """Communication and compute at the same time."""
    timeline: tuple[tuple[float, float, str, str], ...]
    """Of one call: start and duration in microseconds, counted from the rank's first record in it, name, role."""
    begins_us: float | None = None
    """The timeline's beginning, counted from that of the rank that began first; None where the clocks are not known."""


@dataclass(frozen=True)
class SideProfile:
    """The reference's calls, or the candidate's: means over the ranks."""

    calls: int
    kernels_per_call: float
    copies_per_call: float
    fills_per_call: float
    copied_bytes_per_call: float | None
    """None where a copy's record does not say."""
    busy_us: float
    communication_us: float
    compute_us: float
    fused_us: float
    overlap: float | None
    """Share of the communication time that passed under compute; None where records cannot tell, `overlap_note` says why."""
    overlap_note: str
    fused: tuple[str, ...]
    """Kernels that do both."""
    top: tuple[KernelUse, ...]
    """The ten names that took longest."""
    observed_paths: tuple[ObservedPath, ...]
    ranks: tuple[RankProfile, ...]
    left_out: int = 0
    """Records past the limit; where there are any, all numbers are too small."""


@dataclass(frozen=True)
class Profile:
    candidate: SideProfile | None
    reference: SideProfile | None
    note: str
    """How it was taken, and why a side is missing."""
