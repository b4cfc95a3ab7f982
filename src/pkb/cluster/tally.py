"""What a run has come to, read from the store: the same figures whoever worked on it, and however often it was stopped."""

from dataclasses import asdict, dataclass

from pkb.analysis.outcomes import NO_ANSWER, NO_VERDICT, UNDER_WAY, WAITING, counts, run_outcomes
from pkb.store import Reader, Run
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
    tokens_in: int | None
    tokens_out: int | None

    def exit_status_for(self, *, limited: bool) -> int:
        """0: every task has its outcome. 2: some have none. `limited`: those that wait were not asked for this time."""
        return 2 if self.failed or self.elsewhere or (self.waiting and not limited) else 0

    def to_dict(self) -> dict[str, Json]:
        return asdict(self)


def tally(reader: Reader, run: Run) -> Tally:
    run = reader.run(run.id)
    outcomes = run_outcomes(reader, run)
    found = counts(outcomes)
    decisions = [row.decision for outcome in outcomes if (row := outcome.last) is not None]
    return Tally(
        run=run.id,
        name=run.name,
        state=reader.summary(run).shown_state,
        tasks=found.tasks,
        verdicts=found.verdicts,
        no_answer=found.outcomes.get(NO_ANSWER, 0),
        timed=sum(decision is not None for decision in decisions),
        faster=sum(decision == "faster" for decision in decisions),
        failed=tuple((outcome.task.key, outcome.reason) for outcome in outcomes if outcome.word == NO_VERDICT),
        waiting=found.outcomes.get(WAITING, 0),
        elsewhere=found.outcomes.get(UNDER_WAY, 0),
        cost_usd=found.spent.cost_usd,
        tokens_in=found.spent.tokens_in,
        tokens_out=found.spent.tokens_out,
    )
