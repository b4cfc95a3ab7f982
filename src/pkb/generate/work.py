"""What the solvers, the tools and the scorer of one evaluation share: the items to work on, the journal and the judge."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from pkb.generate.journal import Journal
from pkb.generate.judging import Judge, Progress
from pkb.generate.key_guard import guard_keys
from pkb.generate.prompt import Prompt
from pkb.generate.settings import Settings
from pkb.store import TaskSpec
from pkb.types.document import VerdictDocument
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from inspect_ai.model import Model
    from inspect_ai.solver import TaskState

# Names in a sample's store: what the solver leaves for the scorer.
CODE = "code"
VERDICT = "verdict"
PROBLEM = "problem"
"""Why there is nothing to judge: what is wrong with the answer, or why none came."""


@dataclass(frozen=True)
class Item:
    task: TaskSpec
    prompt: Prompt

    @property
    def name(self) -> str:
        """The sample's id in inspect's log: `13_gemm_allreduce-s0`."""
        return f"{self.task.problem}-s{self.task.sample}"


def items_of(settings: Settings, tasks: Sequence[TaskSpec]) -> list[Item]:
    """The tasks with their prompts; samples of one problem share theirs."""
    registry = settings.registry()
    prompts: dict[tuple[str, int, str, str], Prompt] = {}
    items = []
    for task in tasks:
        case = (task.problem, task.ranks, task.size, task.dtype)
        if case not in prompts:
            prompts[case] = settings.prompt(registry.get(task.problem), task)
        items.append(Item(task, prompts[case]))
    return items


class Work:
    def __init__(
        self, settings: Settings, items: Sequence[Item], *, journal: Journal, judge: Judge, progress: Progress
    ) -> None:
        self.settings, self.journal, self.progress = settings, journal, progress
        self.items = {item.name: item for item in items}
        self._judge = judge

    def item(self, state: "TaskState") -> Item:
        return self.items[str(state.sample_id)]

    async def judge(self, item: Item, code: str, *, what: str = "judging") -> VerdictDocument:
        """In a thread: the event loop goes on talking to models. A cancelled wait ends the evaluation."""
        self.progress(f"{item.name}: {what}")
        order = self.settings.order(item.task, code)
        try:
            document = await anyio.to_thread.run_sync(self._judge.evaluate, order, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            self._judge.cancel(order)
            raise
        except UserError as error:  # the platform went away: no other candidate will fare better
            self.journal.fatal = error
            raise
        self.progress(f"{item.name}: {document.in_brief}")
        return document


def current_model() -> "Model":
    """The model of the running evaluation; one that `inspect eval` opened is guarded here."""
    from inspect_ai.model import get_model

    return guard_keys(get_model())
