"""What `pkb lint` says about one null candidate, or one of the problem's own functions, in one case."""

import math
from dataclasses import asdict, dataclass

from pkb.types.json_value import Json


@dataclass(frozen=True)
class LintRow:
    """One null candidate (it returns zeros, its own shard, its input, ...) against one case of one problem."""

    problem_id: int
    name: str
    size: str
    ranks: int
    dtype: str
    null_candidate: str
    passed: bool
    """Of a null candidate that is bad news: one that does nothing useful, or too little, would be called correct."""
    margin: float
    """Error over tolerance on the rank where the null candidate is worst: at most 1 would pass; may be infinite."""
    honest_ratio: float | None
    """The same ratio for an honest recomputation: how near an honest kernel is to failing. None if not taken."""
    note: str = ""
    tolerated: bool = False
    """Passing would be no cheat here: communication with fewer bits, inside the tolerance of a computation. Only reported."""

    must_pass: bool = False
    """No null candidate but a function of the problem's own: its baseline, its exact truth."""

    @property
    def is_bad(self) -> bool:
        return self.passed != self.must_pass

    @property
    def is_null(self) -> bool:
        """One that must not pass."""
        return not self.tolerated and not self.must_pass

    @property
    def gap(self) -> float | None:
        """How many times further from the truth this null candidate is than honest rounding. None where that is exact."""
        return self.margin / self.honest_ratio if self.honest_ratio else None

    def to_dict(self) -> dict[str, Json]:
        """JSON has no infinity, so an infinite ratio becomes the string `inf`."""
        fields = asdict(self)
        for name in ("margin", "honest_ratio"):
            value = fields[name]
            if value is not None and not math.isfinite(value):
                fields[name] = "inf"
        return fields
