"""Of several samples of one problem, the fastest is measured once more before it is reported as the best of k.

The best of several measurements is too good: noise helped to choose it. The second measurement chose nothing, so it is the one
that counts; it is stored as a later verdict of the same task, and readers take the last. If another sample is then the fastest,
its only measurement would be reported: so it is measured once more too, until the fastest is one that was.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pkb.store import EvaluationRow, Reader, Run, Task

AGAIN = 1
"""The step of the second verdict; a sweep's first is step 0."""


class Winner(NamedTuple):
    task: Task
    candidate_sha: str


def winners(reader: Reader, run: Run) -> list[Winner]:
    """Those that are the fastest by their last verdict and have one verdict only; none while tasks of the run are open."""
    tasks = {task.key: task for task in reader.tasks(run.id)}
    if any(task.state in ("waiting", "claimed") for task in tasks.values()):
        return []
    last: dict[str, EvaluationRow] = {}
    again = set()
    for row in sorted(reader.evaluations([run.id]), key=lambda row: row.step):
        last[row.task_key] = row
        if row.step:
            again.add(row.task_key)
    groups: dict[tuple[str, ...], list[Task]] = {}
    for task in tasks.values():
        case = task.case
        same = (
            task.collection,
            task.backend,
            case.problem,
            case.platform,
            str(case.ranks),
            case.size,
            case.dtype,
            case.plan,
        )
        groups.setdefault(same, []).append(task)
    found = []
    for several in groups.values():
        best = _best(several, last) if len(several) > 1 else None
        if best is not None and best.task_key not in again and best.candidate_sha is not None:
            found.append(Winner(tasks[best.task_key], best.candidate_sha))
    return found


def _best(tasks: list[Task], last: Mapping[str, EvaluationRow]) -> EvaluationRow | None:
    """As `analysis.samples.best` chooses: the correct one whose interval begins highest. Untimed ones say nothing of speed."""
    timed = [row for task in tasks if (row := last.get(task.key)) is not None and row.speedup_low is not None]
    believed = [row for row in timed if row.decision != "unproven"]
    return max(believed, key=lambda row: row.speedup_low or 0.0, default=None)
