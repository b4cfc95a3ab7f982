"""A problem's baseline from end to end on CPU ranks: timed in place of the reference, and compared before it is believed."""

import json
import textwrap
from pathlib import Path

import jsonschema
import pytest

from pkb.judge.oracle_only.lint import lint
from pkb.judge.oracle_only.references import ReferenceRow, run_references
from pkb.judge.oracle_only.world import running
from pkb.judge.session import evaluate
from pkb.problems.registry import load_folder
from pkb.problems.suite import suite
from pkb.types.case import Case
from pkb.types.document_versions import read_evaluation
from pkb.types.job import Job
from pkb.types.lint import LintRow
from pkb.types.plan import Plan
from pkb.types.stock import Against, StockFunction
from pkb.types.verdict import Evaluation, FailureKind, Stage, SuiteRef, Verdict

SCHEMA = Path(__file__).parents[2] / "docs" / "verdict.schema.json"
TIMED = Plan("quick", trials=1, odd_trials=0, second_world_trials=0, race_calls=0, race_repeats=0, timing_rounds=2,
             calls_per_round=3, warmup_calls=1, verify_share=0.5)  # fmt: skip
PROBLEM = """
import time

import torch
import torch.distributed as dist

SIZES = {"tiny": {"n": 1000}}
kept = []


def inputs(draw):
    return {"x": draw.normal("x", (draw.size["n"],)), "y": draw.normal("y", (draw.size["n"],), key="all")}


def solution(x, y):
    time.sleep(0.02)
    total = x.clone()
    dist.all_reduce(total)
    return total + y
"""
CANDIDATE = """
import torch
import torch.distributed as dist


def solution(x, y):
    total = x.clone()
    dist.all_reduce(total)
    return total + y
"""
RIGHT = """
def baseline(x, y):
    total = x.clone()
    dist.all_reduce(total)
    return total.add_(y)
"""
EXACT = """
def exact(x, y):
    total = x.clone()
    dist.all_reduce(total)
    return torch.cat([a + b for a, b in zip(total.split(100), y.split(100))]){}
"""
FAULTS = {
    "values differ": "def baseline(x, y):\n    return x + y\n",
    "changes an argument": "def baseline(x, y):\n    dist.all_reduce(x)\n    return x + y\n",
    "shares the memory of its argument y": "def baseline(x, y):\n    total = x.clone()\n    dist.all_reduce(total)\n"
    "    if y.add_(total) is y:\n        return y\n",
    "a later call overwrites its result": "def baseline(x, y):\n    total = x.clone()\n    dist.all_reduce(total)\n"
    "    kept.append(total) if not kept else kept[0].copy_(total)\n    return kept[0].add_(y)\n",
    "should be float32 and is float64": "def baseline(x, y):\n    total = x.clone()\n    dist.all_reduce(total)\n"
    "    return (total + y).double()\n",
    "precision": "def baseline(x, y):\n    torch.set_float32_matmul_precision('high')\n    total = x.clone()\n"
    "    dist.all_reduce(total)\n    return total + y\n",
    "raised": "def baseline(x, y):\n    raise RuntimeError('it raised this')\n",
}


NOT_COMPILED = """
from pkb.problems import compiled
compiled.ON = ("cpu",)

@compiled.compiled
def added(total, y):
    return total + y if total.sum().item() == total.sum().item() else y

def baseline(x, y):
    total = x.clone()
    dist.all_reduce(total)
    return added(total, y)
"""


def judged(folder: Path, baseline: str, *, against: Against = "baseline") -> Evaluation:
    problems = folder / "problems"
    problems.mkdir()
    (problems / "p901_my_layer.py").write_text(PROBLEM + baseline)
    candidate = folder / "901_my_layer_torch.py"
    candidate.write_text(textwrap.dedent(CANDIDATE))
    case = Case("901", "cpu", 2, "tiny", "fp32", "quick")
    return evaluate(
        Job(candidate, case, custom_plan=TIMED, against=against, problems_folder=problems, call_limit_s=30.0)
    )


@pytest.mark.parametrize("against", ["baseline", "reference"])
def test_both_readings_are_there(tmp_path: Path, against: Against) -> None:
    result = judged(tmp_path, RIGHT, against=against)
    assert result.verdict is Verdict.CORRECT, result.detail
    timing = result.timing
    assert timing is not None
    assert timing.other is not None
    assert {timing.against, timing.other.against} == {"baseline", "reference"}
    assert timing.against == against
    slow, fast = (
        (timing.reference_us, timing.other.us) if against == "reference" else (timing.other.us, timing.reference_us)
    )
    assert slow > 20_000, "the reference sleeps"
    assert fast < slow
    assert [len(one) for one in timing.other.samples_us] == [3] * timing.other.rounds
    assert f"the baseline's outputs compared; timed against the {against}" in result.checks
    assert (result.problem.baseline_version, result.suite) == (1, SuiteRef(suite().version, suite().judge_version))
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(json.loads(result.to_json()))
    assert read_evaluation(json.loads(result.to_json())) == result


def test_one_function_for_both_is_measured_once(tmp_path: Path) -> None:
    result = judged(tmp_path, "")
    assert result.timing is not None
    assert (result.timing.against, result.timing.other) == ("reference", None)
    assert result.problem.baseline_version is None
    assert "timed against the reference, which is the baseline of this problem at this size" in result.checks


def test_a_reference_that_cannot_run_costs_its_reading_and_nothing_else(tmp_path: Path) -> None:
    """As one whose scores do not fit: an exact truth and a baseline are enough for a verdict."""
    too_large = "\n\ndef solution(x, y):\n    raise RuntimeError('no room for the scores')\n"
    result = judged(tmp_path, RIGHT + EXACT.format("") + too_large)
    assert result.verdict is Verdict.CORRECT, result.detail
    assert result.timing is not None
    assert (result.timing.against, result.timing.other) == ("baseline", None)
    (why,) = [check for check in result.checks if check.startswith("no speedup against the reference")]
    assert "no room for the scores" in why


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_baseline_is_an_error_of_the_problem(tmp_path: Path, fault: str) -> None:
    result = judged(tmp_path, FAULTS[fault])
    assert (result.verdict, result.stage) == (Verdict.HARNESS_ERROR, Stage.TIMING), result.detail
    assert result.failure is not None
    assert result.failure.kind is FailureKind.BASELINE
    assert "the baseline of problem 901 is at fault, not the candidate" in result.detail
    assert fault in result.detail


def test_a_baseline_that_cannot_be_compiled_here_says_nothing_about_the_candidate(tmp_path: Path) -> None:
    result = judged(tmp_path, NOT_COMPILED)
    assert (result.verdict, result.stage, result.timing) == (Verdict.HARNESS_ERROR, Stage.TIMING, None), result.detail
    assert "torch.compile, which the judge makes this problem's baseline with, failed on this machine" in result.detail
    assert "--against reference" in result.detail
    assert result.failure is not None
    assert result.failure.kind is FailureKind.HARNESS


def test_against_the_reference_it_costs_its_reading_and_nothing_else(tmp_path: Path) -> None:
    result = judged(tmp_path, NOT_COMPILED, against="reference")
    assert result.verdict is Verdict.CORRECT, result.detail
    assert result.timing is not None
    assert (result.timing.against, result.timing.other) == ("reference", None)
    (why,) = [
        check for check in result.checks if check.startswith("no speedup against the baseline, which did not run")
    ]
    assert "torch.compile" in why
    assert not [check for check in result.checks if "outputs compared" in check]


def test_against_the_reference_a_faulty_baseline_costs_its_reading_and_nothing_else(tmp_path: Path) -> None:
    result = judged(tmp_path, FAULTS["values differ"], against="reference")
    assert result.verdict is Verdict.CORRECT, result.detail
    assert result.timing is not None
    assert (result.timing.against, result.timing.other) == ("reference", None)
    (why,) = [check for check in result.checks if check.startswith("no speedup against the baseline")]
    assert "values differ" in why


def linted(folder: Path, functions: str, *, dtype: str = "fp32") -> dict[str, LintRow]:
    (folder / "p901_my_layer.py").write_text(PROBLEM + functions + "\nWORLD_SIZES = (2,)\n")
    problems = load_folder(folder)
    rows = lint(
        problems, platform="cpu", sizes=["tiny", "paper"], world_sizes=[2], dtypes=[dtype], problems_folder=folder
    )
    assert {row.size for row in rows} == {"tiny", "paper"}
    assert not [row for row in rows if row.is_bad and not row.must_pass]
    return {f"{row.null_candidate}, {row.size}": row for row in rows if row.must_pass}


def test_lint_wants_the_baseline_right_in_every_case_and_the_exact_truth_at_tiny(tmp_path: Path) -> None:
    rows = linted(tmp_path, RIGHT + EXACT.format(""))
    assert set(rows) == {"baseline, tiny", "baseline, paper", "exact, tiny"}
    assert not any(row.is_bad for row in rows.values()), rows
    assert all(row.margin < 1 for row in rows.values())


def test_lint_finds_a_wrong_baseline_and_an_exact_truth_in_float32(tmp_path: Path) -> None:
    rows = linted(tmp_path, FAULTS["values differ"] + EXACT.format(".float().to(x.dtype)"))
    assert all(row.is_bad for row in rows.values())
    assert "values differ" in rows["baseline, paper"].note
    assert "its values in float64 are not the reference's" in rows["exact, tiny"].note


def test_lint_finds_an_exact_truth_of_another_dtype(tmp_path: Path) -> None:
    rows = linted(tmp_path, EXACT.format(".double()"))
    assert rows["exact, tiny"].is_bad
    assert "should be float32 and is float64" in rows["exact, tiny"].note


def rows_of(folder: Path, functions: str, function: StockFunction) -> list[ReferenceRow]:
    (folder / "p901_my_layer.py").write_text(PROBLEM + functions)
    with running("cpu", 2) as platform:
        return run_references(
            load_folder(folder), platform=platform, size="tiny", world_size=2, calls=2, function=function,
            problems_folder=folder,
        )  # fmt: skip


def test_each_function_is_timed_by_its_name(tmp_path: Path) -> None:
    (slow,) = rows_of(tmp_path, RIGHT, "reference")
    (fast,) = rows_of(tmp_path, RIGHT, "baseline")
    assert (slow.function, fast.function, slow.error, fast.error) == ("reference", "baseline", "", "")
    assert slow.time_us is not None
    assert slow.time_us > 20_000
    assert fast.compared is not None
    assert fast.compared < 1
    assert fast.peak_bytes


def test_no_time_of_a_wrong_baseline_or_of_one_that_is_not_there(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, FAULTS["values differ"], "baseline")
    assert (row.time_us, row.error[:6]) == (None, "wrong:")
    assert rows_of(tmp_path, "", "baseline") == []


def test_symmetric_memory_operators_are_unsupported_on_a_cpu(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, RIGHT.replace("baseline", "stock_symmetric"), "stock_symmetric")
    assert (row.time_us, row.error[:11]) == (None, "unsupported")
