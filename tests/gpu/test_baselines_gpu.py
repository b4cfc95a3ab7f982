"""Baselines and symmetric-memory forms by their CUDA paths: fused attention, Triton, TF32, foreach operators."""

from pathlib import Path

import pytest

from pkb.judge.oracle_only.references import ReferenceRow, run_references
from pkb.judge.oracle_only.world import running
from pkb.judge.session import evaluate
from pkb.problems import default_registry, get
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.plan import Plan
from pkb.types.stock import StockFunction
from pkb.types.verdict import Verdict

pytestmark = pytest.mark.gpu

TIMED = Plan("quick", trials=1, odd_trials=0, second_world_trials=0, race_calls=0, race_repeats=0, timing_rounds=4,
             calls_per_round=5, warmup_calls=5, verify_share=0.2)  # fmt: skip


def measured(size: str, world_size: int, function: StockFunction) -> list[ReferenceRow]:
    with running("virtual", world_size) as platform:
        rows = run_references(
            list(default_registry().all()),
            platform=platform,
            size=size,
            world_size=world_size,
            calls=2,
            function=function,
        )
    for row in rows:
        print(f"{row.id} {row.name}: {row.time_us} us, error ratio {row.compared} {row.error}{row.compare_error}")
    return rows


@pytest.mark.parametrize(("size", "world_size"), [("tiny", 2), ("odd", 4)])
def test_every_baseline_passes_on_a_gpu(size: str, world_size: int) -> None:
    rows = measured(size, world_size, "baseline")
    assert len(rows) > 20
    assert [(row.id, row.error, row.compare_error) for row in rows if row.error or row.compare_error] == []
    assert all(row.compared is not None and row.compared <= 1 for row in rows)


def test_no_symmetric_form_is_wrong() -> None:
    """One that this machine or this torch does not have says so; none may give another result."""
    rows = measured("paper", 2, "stock_symmetric")
    assert {row.id for row in rows} == {1, 2, 7, 12, 13, 16}
    assert not [row.error for row in rows if row.error.startswith("wrong")]


@pytest.mark.parametrize("number", [18, 52, 71])
def test_ranks_of_the_judge_compile_what_candidates_are_timed_against(number: int, tmp_path: Path) -> None:
    candidate = tmp_path / "candidate.py"
    imports = "import torch\nimport torch.distributed as dist\n\n\n"
    candidate.write_text(imports + get(number).reference_source)
    case = Case(str(number), "virtual", 2, "tiny", "bf16", "quick")
    result = evaluate(Job(candidate, case, custom_plan=TIMED))
    assert result.verdict is Verdict.CORRECT, result.detail
    assert result.timing is not None
    assert result.timing.other is not None, result.checks
    assert (result.timing.against, result.timing.other.against) == ("baseline", "reference")
    print(f"{result.timing.reference_us:.0f} us, the reference {result.timing.other.us:.0f} us; {result.stage_seconds}")
