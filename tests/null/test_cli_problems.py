"""`pkb problems` and `pkb show`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pkb
from pkb.cli.main import app
from pkb.problems.registry import default_registry

RUNNER = CliRunner()


def test_problems_table_and_filters() -> None:
    everything = RUNNER.invoke(app, ["problems"])
    assert everything.exit_code == 0
    (row,) = [line for line in everything.stdout.splitlines() if " gemm_allreduce " in line]
    problem = default_registry().get(13)
    assert row.split()[:5] == ["13", "gemm_allreduce", "tp", "mlp", "all-reduce"]
    assert problem.source in row
    assert problem.summary in row  # a pipe gets one line a problem
    listed = json.loads(RUNNER.invoke(app, ["problems", "--json"]).stdout)
    assert [entry["id"] for entry in listed] == [p.id for p in default_registry().all()]


@pytest.mark.parametrize(
    ("options", "keeps"),
    [
        (["--parallelism", "tp"], lambda row: "tp" in row["parallelism"]),
        (["--layer", "mlp"], lambda row: row["layer"] == "mlp"),
        (["--stage", "inference"], lambda row: "inference" in row["stage"]),
        (["--pattern", "all-reduce"], lambda row: "all-reduce" in row["pattern"]),
        (["--source", "megatron"], lambda row: "megatron" in row["source"].lower()),
        (["--layer", "mlp", "--parallelism", "ep"], lambda row: row["layer"] == "mlp" and "ep" in row["parallelism"]),
    ],
)  # fmt: skip
def test_filters_keep_exactly_what_they_name(options: list[str], keeps: Callable[[dict[str, Any]], bool]) -> None:
    everything = json.loads(RUNNER.invoke(app, ["problems", "--json"]).stdout)
    kept = json.loads(RUNNER.invoke(app, ["problems", "--json", *options]).stdout)
    assert kept == [row for row in everything if keeps(row)]
    assert len(kept) < len(everything)


def test_groups_hold_every_problem_once() -> None:
    for key in ("parallelism", "layer", "pattern", "source"):
        text = RUNNER.invoke(app, ["problems", "--group-by", key]).stdout
        ids = [
            int(line.split()[0]) for line in text.splitlines() if line.strip()[:1].isdigit() and " of " not in line[:12]
        ]
        assert sorted(ids) == [p.id for p in default_registry().all()], key
    assert "\ntp (" in RUNNER.invoke(app, ["problems", "--group-by", "parallelism"]).stdout


def test_show_by_id_name_and_stem_is_the_same() -> None:
    texts = {RUNNER.invoke(app, ["show", key]).stdout for key in ("13", "gemm_allreduce", "13_gemm_allreduce")}
    assert len(texts) == 1
    text = texts.pop()
    for fact in (
        "Row-parallel linear layer", "Megatron-LM RowParallelLinear", "dist.all_reduce(C, op=dist.ReduceOp.SUM)",
        "solution(A_local", "bfloat16 [1024, 512]", "relative Frobenius error", "0.01 (bf16)", "all-reduce",
        "1, 2, 3, 4, 8", "size real",
    ):  # fmt: skip
        assert fact in text, fact


def test_show_json_has_the_figures_of_the_problem() -> None:
    document = json.loads(RUNNER.invoke(app, ["show", "13", "--json", "--ranks", "2", "--dtype", "fp32"]).stdout)
    case = document["cases"]["paper"]
    problem = default_registry().get(13)
    cost = problem.cost(problem.sizes["paper"], 2, 4)
    assert case["arguments"] == {"A_local": "float32 [1024, 512]", "B_local": "float32 [512, 1024]"}
    assert case["argument_bytes"] == 2 * 1024 * 512 * 4
    assert (case["flops"], case["link_sent_bytes"], case["phases"]) == (cost.flops, cost.link_sent_bytes, cost.phases)
    impossible = json.loads(RUNNER.invoke(app, ["show", "13", "--json", "--ranks", "5"]).stdout)
    assert "does not run with 5 ranks" in impossible["cases"]["paper"]["why_not"]


def test_every_problem_can_be_shown() -> None:
    for problem in default_registry().all():
        document = json.loads(RUNNER.invoke(app, ["show", str(problem.id), "--json"]).stdout)
        assert set(document["cases"]) == set(problem.sizes)
        assert RUNNER.invoke(app, ["show", problem.name]).exit_code == 0


def test_show_reads_a_folder_of_problems(tmp_path: Path) -> None:
    source = Path(pkb.__file__).parent / "problems" / "p13_gemm_allreduce.py"
    text = source.read_text().replace("id=13", "id=913").replace('name="gemm_allreduce"', 'name="mine"')
    (tmp_path / "p913_mine.py").write_text(text)
    assert RUNNER.invoke(app, ["show", "913", "--problems-dir", str(tmp_path)]).exit_code == 0
    assert RUNNER.invoke(app, ["show", "913"]).exit_code == 2
    merged = json.loads(RUNNER.invoke(app, ["problems", "--json", "--problems-dir", str(tmp_path)]).stdout)
    assert {13, 913} <= {row["id"] for row in merged}
