"""The published results as rows beside ours: marked everywhere, since another judge took them on other hardware."""

from dataclasses import dataclass
from typing import NamedTuple

from pkb.analysis.published import Published

MARK = "published, not measured here"


class Counted(NamedTuple):
    """Problems of one reading."""

    correct: int
    faster: int


class CategoryCell(NamedTuple):
    problems: int
    pass_at_1: int


@dataclass(frozen=True)
class PublishedRow:
    id: str
    name: str
    problems: int
    single: Counted
    best: Counted
    agent: Counted | None
    curve: list[tuple[float, float]]
    categories: dict[str, CategoryCell]
    """By parallelism."""

    def reading(self, view: str) -> Counted | None:
        return {"single": self.single, "best": self.best, "agent": self.agent}[view]


def published_rows(said: Published) -> list[PublishedRow]:
    return [
        PublishedRow(
            id=f"published-{model.key}",
            name=model.name,
            problems=said.problems,
            single=Counted(model.solved.pass_at_1, model.solved.fast_at_1),
            best=Counted(model.solved.pass_at_3, model.solved.fast_at_3),
            agent=Counted(said.agent.correct, said.agent.faster) if model.key == said.agent.model else None,
            curve=list(model.curve.items()),
            categories={
                category.parallelism: CategoryCell(category.problems, category.results[model.key].pass_at_1)
                for category in said.categories
            },
        )
        for model in said.models.values()
    ]
