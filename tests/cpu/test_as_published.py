"""The published protocol as a plan: what it does not look at is right by it, and what is wrong stays wrong."""

import json
from pathlib import Path

import jsonschema
import pytest

from pkb.judge.session import evaluate
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Evaluation, Stage, Verdict

ROOT = Path(__file__).parents[2]
MISTAKES = ROOT / "tests" / "adversaries" / "mistakes"
VALIDATOR = jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "verdict.schema.json").read_text()))


def judged(candidate: Path, *, problem: str, plan: str, ranks: int = 2, timing: bool = False) -> Evaluation:
    case = Case(problem, "cpu", ranks, "tiny", "bf16", plan)
    evaluation = evaluate(Job(candidate, case, timing=timing, call_limit_s=30.0))
    VALIDATOR.validate(json.loads(evaluation.to_json()))
    return evaluation


def header(name: str, word: str) -> str:
    """What the file says of itself: `# problem: 3`."""
    return (MISTAKES / f"{name}.py").read_text().partition(f"# {word}: ")[2].split()[0]


@pytest.mark.parametrize(
    "name", ["even_splits_assumed", "hard_coded_root", "output_aliases_input", "returned_static_output", "transposed"]
)
def test_what_the_published_protocol_does_not_see(name: str) -> None:
    """tests/adversaries asserts what these get by other plans. A tensor of constants is its own transpose."""
    assert header(name, "expect") != "correct"
    result = judged(MISTAKES / f"{name}.py", problem=header(name, "problem"), plan="published")
    assert (result.verdict, result.plan) == (Verdict.CORRECT, "published")


def test_what_is_wrong_by_any_protocol() -> None:
    name = "not_reduced_over_all_ranks"
    ranks = int(header(name, "ranks"))
    result = judged(MISTAKES / f"{name}.py", problem=header(name, "problem"), plan="published", ranks=ranks)
    assert result.verdict is Verdict.WRONG


def test_changed_arguments_and_another_dtype_are_not_looked_at(tmp_path: Path) -> None:
    candidate = tmp_path / "1_allreduce_torch.py"
    candidate.write_text(
        "import torch.distributed as dist\n"
        "def solution(tensor):\n"
        "    dist.all_reduce(tensor)\n"
        "    return tensor.float()\n"
    )
    assert judged(candidate, problem="1", plan="published").verdict is Verdict.CORRECT
    assert judged(candidate, problem="1", plan="quick").verdict is Verdict.REJECTED


def test_it_is_timed_by_the_planned_rounds_alone() -> None:
    """A reused output, so that a look at timed calls would find something."""
    result = judged(MISTAKES / "returned_static_output.py", problem="1", plan="published", timing=True)
    assert (result.verdict, result.stage) == (Verdict.CORRECT, Stage.DONE)
    assert result.timing is not None
    assert (result.timing.rounds, result.timing.calls) == (5, 100)
    assert not any("races" in check or "odd" in check for check in result.checks)
