"""The published results as rows beside ours: marked everywhere, since another judge took them on other hardware."""

from typing import Any

from pkb.analysis.published import Published

MARK = "published, not measured here"


def published_rows(said: Published) -> list[dict[str, Any]]:
    rows = [
        {
            "id": f"published-{model.key}",
            "name": model.name,
            "problems": said.problems,
            "single": {"correct": model.solved.pass_at_1, "faster": model.solved.fast_at_1},
            "best": {"correct": model.solved.pass_at_3, "faster": model.solved.fast_at_3},
            "agent": None,
            "curve": [[p, share] for p, share in model.curve.items()],
            "modes": {mode.value: count for mode, count in model.modes.items()},
            "categories": {
                category.parallelism: {"problems": category.problems, **category.results[model.key]._asdict()}
                for category in said.categories
            },
        }
        for model in said.models.values()
    ]
    for row in rows:
        if row["id"] == f"published-{said.agent.model}":
            row["agent"] = {"correct": said.agent.correct, "faster": said.agent.faster}
    return rows
