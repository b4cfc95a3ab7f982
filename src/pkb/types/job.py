"""What is asked of the judge."""

from dataclasses import dataclass
from pathlib import Path

from pkb.types.plan import Plan


@dataclass(frozen=True)
class Job:
    """One evaluation: this candidate, for this problem, there."""

    candidate: Path
    problem: str
    """Id, name or stem."""
    platform: str
    """`cpu`, `virtual` or `node`: already resolved from `auto`."""
    ranks: int
    size: str
    dtype: str
    plan: Plan
    timing: bool = True
    problems_folder: Path | None = None
    """A user's own problem modules, beside those that come with the package."""
    call_limit_s: float = 60.0
    """How long one batch of calls may take on top of what the reference needed, before it counts as a deadlock."""
    build_limit_s: float = 600.0
    memory_limit_bytes: int | None = None
    """Resident memory that all candidate ranks together may use; None lets the platform decide."""
