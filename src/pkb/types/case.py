"""In what circumstances a candidate is judged."""

from dataclasses import dataclass, replace

AUTO = "auto"
"""Of a platform, a size or a dtype: decided where the case is run, by what the machine has and what the problem prefers."""


@dataclass(frozen=True)
class Case:
    """Held by whatever is about one: a job, a task of a run, an order, a request, a stored verdict.

    `judge/settling.py` replaces `auto` and says why a case cannot run here. Nothing is checked when one is made: rows of an
    old store must stay readable.
    """

    problem: str
    """Id, name or stem."""
    platform: str = AUTO
    ranks: int = 4
    size: str = AUTO
    dtype: str = AUTO
    plan: str = "standard"
    """The name of one of `types/plan.py`."""

    def resolve(self, *, problem: str, platform: str, size: str, dtype: str) -> "Case":
        """The problem by its stem, the platform that `auto` means here, and this size and dtype where none was asked for."""
        return replace(
            self,
            problem=problem,
            platform=platform,
            size=size if self.size == AUTO else self.size,
            dtype=dtype if self.dtype == AUTO else self.dtype,
        )

    def __str__(self) -> str:
        return f"{self.problem} on {self.platform}, {self.ranks} ranks, {self.size}, {self.dtype}, {self.plan}"
