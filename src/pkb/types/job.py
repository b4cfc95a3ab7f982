"""What is asked of the judge."""

from dataclasses import dataclass, replace
from pathlib import Path

from pkb.types.case import Case
from pkb.types.plan import MORE_S, Plan
from pkb.types.plan import plan as plan_named
from pkb.types.race import RaceSchedule
from pkb.types.stock import Against
from pkb.types.timing import tells_speed


@dataclass(frozen=True)
class Job:
    """One evaluation: this candidate, in this case."""

    candidate: Path
    case: Case
    """Resolved: no `auto` in it."""
    timing: bool | None = True
    """None: where a time says something about speed, which it does not on a CPU."""
    against: Against = "baseline"
    """Which of the problem's own functions it is timed against; `reference` gives the published reading."""
    problems_folder: Path | None = None
    """A user's own problem modules, beside those that come with the package."""
    call_limit_s: float = 60.0
    """How long one batch of calls may take before it counts as a deadlock."""
    build_limit_s: float = 600.0
    memory_limit_bytes: int | None = None
    """Resident memory that all candidate ranks together may use; None lets the platform decide."""
    profile: bool = True
    """Look at what the calls did on the device, where there is one."""
    starts: int = 0
    """In how many starts of the ranks it is timed; 0: in one, and in more where that cannot tell."""
    more_s: float = MORE_S
    """What further rounds and starts may take where the planned ones do not settle the question. With 0 there are none, and
    a gain that needs several starts is `unproven`."""
    race_schedule: RaceSchedule = "both"
    """Of the calls that are recorded to prove races."""
    custom_plan: Plan | None = None
    """In place of the plan that the case names: for tests and measurements that want other numbers."""

    @property
    def is_timed(self) -> bool:
        asked = tells_speed(self.case.platform) if self.timing is None else self.timing
        return asked and self.plan.timing_rounds > 0

    @property
    def plan(self) -> Plan:
        return self.custom_plan or plan_named(self.case.plan)

    def at_size(self, size: str) -> "Job":
        return replace(self, case=replace(self.case, size=size))
