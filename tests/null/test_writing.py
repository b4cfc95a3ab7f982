"""What a sweep asks a model is what its settings say."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pkb.cluster.orders import AskOrder
from pkb.cluster.writing import write_candidate
from pkb.types.case import AUTO, Case


@dataclass
class Said:
    code: str | None = None
    problem: str = "there is no code in it"
    stop_reason: str = "stop"
    tokens_in: int | None = 1
    tokens_out: int | None = 1
    cost_usd: float | None = None
    seconds: float = 0.0
    transcript: Any = None


def asked(**wanted: Any) -> tuple[Any, dict[str, Any]]:
    seen: list[tuple[Any, dict[str, Any]]] = []

    def ask(model: str, prompt: Any, **options: Any) -> Said:
        seen.append((prompt, options))
        return Said()

    case = Case("01_allreduce", "cpu", 4, AUTO, AUTO, "quick")
    order = AskOrder(id="1", model="a/b", case=case, backend="triton", hardware="h100x8", **wanted)
    write_candidate(order, ask)
    return seen[0]


def test_worked_examples_and_retries_are_those_of_the_run() -> None:
    usual, options = asked()
    assert options["retries"] == 4
    bare, options = asked(shots=0, retries=1, limit_s=9.0)
    assert (options["retries"], options["time_limit_s"]) == (1, 9.0)
    assert len(bare.user) < len(usual.user)


def test_parts_of_ones_own_take_the_place_of_ours(tmp_path: Path) -> None:
    (tmp_path / "task.md").write_text("A word of mine.\n")
    prompt, _ = asked(parts_folder=str(tmp_path))
    assert "A word of mine." in prompt.user + prompt.system
