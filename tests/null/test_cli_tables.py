"""What lint, check and the figures of a problem look like in a terminal."""

import json

import pytest

from pkb.cli.lint import render_rows, summarize
from pkb.problems.compare import Close, Exact, NormGate, rule_words
from pkb.types.check import CheckReport
from pkb.types.lint import LintRow
from pkb.types.units import bytes_words, flops_words, time_words
from pkb.types.verdict import Failure, FailureKind, Verdict


def _text(renderable: object, width: int = 120) -> str:
    from rich.console import Console

    console = Console(width=width, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def _row(**changes: object) -> LintRow:
    fields: dict[str, object] = dict(
        problem_id=13, name="gemm_allreduce", size="tiny", ranks=4, dtype="bf16", null_candidate="zeros", passed=False,
        margin=100.0, honest_ratio=0.31,
    )  # fmt: skip
    return LintRow(**(fields | changes))  # type: ignore[arg-type]


def test_lint_table_shows_the_nearest_null_candidate() -> None:
    rows = [_row(), _row(null_candidate="own shard", margin=42.5), _row(dtype="fp32", margin=float("inf"))]
    lines = _text(render_rows(rows)).splitlines()
    (line,) = [line for line in lines if "bf16" in line]
    assert all(word in line for word in ("13_gemm_allreduce", "own shard (of 2)", "42.5", "0.31", "clean"))
    assert "inf" in next(line for line in lines if "fp32" in line)
    assert "no null candidate passes: 3 tried, the nearest has 42.5" in _text(summarize(rows))
    assert json.loads(json.dumps([row.to_dict() for row in rows], allow_nan=False))[2]["margin"] == "inf"


def test_lint_names_the_null_candidate_that_passes() -> None:
    rows = [_row(), _row(null_candidate="own shard", passed=True, margin=0.5)]
    assert "PASSES" in _text(render_rows(rows))
    assert "own shard passes with size tiny, 4 ranks, bf16 (margin 0.5)" in _text(summarize(rows))
    assert "nothing was checked" in _text(summarize([]))


def test_check_report_rendering() -> None:
    from pkb.cli.check import render_check

    good = CheckReport(
        ok=True, verdict=None, detail="", paths=("SM load/store",), backend="cuda", built=[("kernel", "cuda", 1.25)],
        skipped=["no nvcc here"], warnings=["no barrier seen"],
    )  # fmt: skip
    text = _text(render_check(good))
    for fact in (
        "ok",
        "has not been run",
        "SM load/store",
        "backend  cuda",
        "kernel (cuda) in 1.2 s",
        "no nvcc",
        "no barrier",
    ):
        assert fact in text
    assert good.exit_status == 0
    bad = CheckReport(
        ok=False,
        verdict=Verdict.COMPILE_ERROR,
        detail="nvcc failed",
        failure=Failure(FailureKind.COMPILER, "x.cu(1): error: y"),
    )
    assert "compile_error" in _text(render_check(bad))
    assert "x.cu(1): error: y" in _text(render_check(bad))
    assert bad.exit_status == 1
    assert json.loads(json.dumps(bad.to_dict()))["failure"]["kind"] == "compiler"
    with pytest.raises(ValueError, match="either ok"):
        CheckReport(ok=True, verdict=Verdict.CRASH, detail="")


def test_rules_in_words() -> None:
    import torch

    assert rule_words(Exact()).startswith("every value equal; the sign of a zero")
    assert "0.5 (fp32)" in rule_words(NormGate(tau={torch.float32: 0.5}))
    assert "rtol is 0.25 (bf16); atol is 0.125 (bf16)" in rule_words(
        Close({torch.bfloat16: 0.25}, {torch.bfloat16: 0.125})
    )

    def odd_rule(truth: object, output: object, context: object) -> float:
        """The sets are equal.

        More."""
        return 0.0

    assert rule_words(odd_rule) == "The sets are equal."


def test_units() -> None:
    assert [bytes_words(n) for n in (0, 1023, 1536, 64 << 20, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1.50 KiB",
        "64.0 MiB",
        "3.00 TiB",
    ]
    assert [flops_words(n) for n in (12, 1.5e9, 2e15)] == ["12 FLOP", "1.5 GFLOP", "2e+03 TFLOP"]
    assert [time_words(t) for t in (0.5, 812.5, 91234, 2.5e7)] == ["0.5 us", "812.5 us", "91.23 ms", "25 s"]
