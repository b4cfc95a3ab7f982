"""The published results as rows beside ours: marked everywhere, since another judge took them on other hardware."""

from dataclasses import dataclass

from pkb.analysis.published import Published

MARK = "published, not measured here"


@dataclass(frozen=True)
class Counted:
    """Problems of one reading."""

    correct: int
    faster: int


@dataclass(frozen=True)
class CategoryCell:
    problems: int
    pass_at_1: int
    pass_at_3: int
    fast_at_1: int
    fast_at_3: int


@dataclass(frozen=True)
class PublishedRow:
    id: str
    name: str
    problems: int
    single: Counted
    best: Counted
    agent: Counted | None
    curve: list[tuple[float, float]]
    modes: dict[str, int]
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
            modes={mode.value: count for mode, count in model.modes.items()},
            categories={
                category.parallelism: CategoryCell(category.problems, *category.results[model.key])
                for category in said.categories
            },
        )
        for model in said.models.values()
    ]
