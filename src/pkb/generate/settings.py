"""How candidates are asked for and judged: all of a run but its problems. Stored with the run, so that it can be resumed."""

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from pkb.generate.prices import Price, price_from
from pkb.generate.prompt import PROMPT_SIZE, Prompt, compose
from pkb.judge.service.messages import JudgeOrder
from pkb.judge.settling import check_words
from pkb.platforms.registry import create
from pkb.problems.base import Problem
from pkb.problems.registry import Registry, default_registry
from pkb.store import TaskSpec
from pkb.types.case import AUTO, Case
from pkb.types.errors import UserError
from pkb.types.json_value import Json

_ORDERS = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Settings:
    model: str
    backend: str = "cuda"
    case: Case = field(default_factory=partial(Case, ""))
    """Every task's, but for the problem."""
    hardware: str = "h100x8"
    """The machine that the prompt describes."""
    shots: int | None = None
    """Worked examples in the prompt; None: one where the backend has any."""
    parts_folder: str | None = None
    problems_folder: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    """Of one answer."""
    time_limit_s: float = 600.0
    """For one answer, retries included."""
    retries: int = 4
    parallel: int = 4
    """Answers asked for at the same time; evaluations come one by one all the same."""
    price: Price | None = None
    steps: int = 20
    """Answers of an agent; this and the budgets are for each problem and sample."""
    budget_tokens: int | None = None
    budget_usd: float | None = None
    budget_seconds: float | None = None
    """Of the model's and the judge's time together."""

    def __post_init__(self) -> None:
        check_words(self.case)
        for name in ("max_tokens", "time_limit_s", "parallel", "steps", "budget_tokens", "budget_usd",
                     "budget_seconds"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise UserError(f"{name} = {value:g} is not possible", "give a number above 0")
        if self.budget_usd is not None and self.price is None:
            raise UserError("a budget in dollars needs prices", "--prices FILE.toml; docs/models.md shows the form")

    def to_dict(self) -> dict[str, Json]:
        """As runs have always kept it: the case's fields among the others, None for a size or dtype that was left open."""
        kept = asdict(self) | {"price": self.price and self.price.to_dict()}
        case = kept.pop("case")
        del case["problem"]
        return kept | {name: None if name != "platform" and word == AUTO else word for name, word in case.items()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> "Settings":
        known = {each.name for each in fields(Settings)}
        chosen = {name: value for name, value in config.items() if name in known}
        if chosen.get("price"):
            chosen["price"] = price_from(chosen["price"], where="the run's price")
        case = {each.name: config[each.name] for each in fields(Case) if config.get(each.name) is not None}
        return Settings(**chosen, case=Case(**case | {"problem": ""}))

    def registry(self) -> Registry:
        return default_registry().with_folder(Path(self.problems_folder) if self.problems_folder else None)

    def tasks(self, problems: list[Problem], *, samples: int) -> list[TaskSpec]:
        """A task for each problem and sample; the case is settled here, so that a resumed run judges the same one."""
        platform = self.case.platform
        # Where the platform is left open (no verdict is asked for yet), whoever judges settles the size as well.
        size = AUTO if platform == AUTO else create(platform).default_size
        return [
            TaskSpec(
                collection=self.model,
                backend=self.backend,
                sample=sample,
                case=self.case.resolve(problem=problem.stem, platform=platform, size=size, dtype=problem.default_dtype),
            )
            for problem in problems
            for sample in range(samples)
        ]

    def prompt(self, problem: Problem, task: TaskSpec) -> Prompt:
        return compose(
            problem,
            backend=self.backend,
            hardware=self.hardware,
            ranks=task.case.ranks,
            size=PROMPT_SIZE if task.case.size == AUTO else task.case.size,
            dtype=task.case.dtype,
            shots=self.shots,
            parts_folder=Path(self.parts_folder) if self.parts_folder else None,
        )

    def order(self, task: TaskSpec, code: str) -> JudgeOrder:
        """Alone on a CPU too: agents work on several problems at once."""
        return JudgeOrder(
            id=f"{next(_ORDERS)}:{task.key}", kind="evaluate", source=code.encode("utf-8", "replace"),
            filename=filename(task), case=task.case, problems_folder=self.problems_folder, alone=True,
        )  # fmt: skip


def filename(task: TaskSpec) -> str:
    return f"{task.problem}_{task.backend}.py"
