"""What a run has come to, read from the store: the same figures whoever worked on it, and however often it was stopped."""

from collections import Counter
from dataclasses import asdict, dataclass

from pkb.store import Reader, Run
from pkb.store.reader import is_held
from pkb.types.json_value import Json


@dataclass(frozen=True)
class Tally:
    run: str
    name: str
    state: str
    tasks: int
    verdicts: dict[str, int]
    no_answer: int
    """Tasks whose model gave no candidate."""
    timed: int
    """Correct, and timed against the reference."""
    faster: int
    """Correct, and proven faster than the reference."""
    failed: tuple[tuple[str, str], ...]
    """(task, why): no verdict could be had."""
    waiting: int
    elsewhere: int
    """Being worked on by another sweep."""
    cost_usd: float | None

    def exit_status_for(self, *, limited: bool) -> int:
        """0: every task has its outcome. 2: some have none. `limited`: those that wait were not asked for this time."""
        return 2 if self.failed or self.elsewhere or (self.waiting and not limited) else 0

    def to_dict(self) -> dict[str, Json]:
        return asdict(self)


def tally(reader: Reader, run: Run) -> Tally:
    run = reader.run(run.id)
    summary = reader.summary(run)
    tasks = reader.tasks(run.id)
    last = {row.task_key: row for row in sorted(reader.evaluations([run.id]), key=lambda row: row.step)}
    rows, judged = list(last.values()), set(last)
    costs = [step.cost_usd for task in tasks for step in reader.steps(run.id, task.key) if step.cost_usd is not None]
    return Tally(
        run=run.id,
        name=run.name,
        state=summary.shown_state,
        tasks=len(tasks),
        verdicts=dict(sorted(Counter(row.verdict for row in rows).items(), key=lambda item: (-item[1], item[0]))),
        no_answer=sum(task.state == "done" and task.key not in judged for task in tasks),
        timed=sum(row.decision is not None for row in rows),
        faster=sum(row.decision == "faster" for row in rows),
        failed=tuple((task.key, task.error) for task in tasks if task.state == "failed"),
        waiting=sum(task.state == "waiting" or (task.state == "claimed" and not is_held(task)) for task in tasks),
        elsewhere=sum(is_held(task) for task in tasks),
        cost_usd=sum(costs) if costs else None,
    )
