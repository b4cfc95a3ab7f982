"""`pkb lint` proves what it says: clean problems pass, and a problem that a null candidate solves is named with it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def lint(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pkb.cli.main", "lint", *map(str, arguments), "--platform", "cpu", "--size", "tiny"],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip


def test_the_first_problems_are_clean(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    done = lint("1-8,13", "--ranks", "2", "--dtype", "bf16", "--json", out)
    assert done.returncode == 0, done.stdout + done.stderr
    rows: list[dict[str, Any]] = json.loads(out.read_text())
    assert {row["problem_id"] for row in rows} == {1, 2, 3, 4, 5, 6, 7, 8, 13}
    for row in [row for row in rows if not row["must_pass"]]:
        assert not row["passed"]
        assert row["tolerated"] == (row["problem_id"] == 13 and row["null_candidate"] == "int8_communication")
        assert row["tolerated"] or row["margin"] == "inf" or row["margin"] > 1
        assert row["honest_ratio"] < 1, "the reference itself is well inside its own tolerance"
    assert "no null candidate passes" in done.stdout


BROKEN = '''
"""A problem as one should not be."""
from typing import Any
import torch
import torch.distributed as dist
from pkb.problems.base import Problem
from pkb.problems.draw import Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

def inputs(draw: Draw) -> dict[str, Any]:
    return {{"tensor": draw.normal("tensor", (8, 8)) {inputs}}}

def solution(tensor: torch.Tensor) -> torch.Tensor:
    total = tensor.clone()
    dist.all_reduce(total)
    return total

def anything(truth: Any, output: Any, context: Any) -> float:
    return 0.5

PROBLEM = Problem(
    id={id}, name="{name}", source="test", taxonomy=Taxonomy(("collective",), "collective", ("data",), ("all-reduce",)),
    sizes={{"tiny": {{"n": 8}}}}, inputs=inputs, reference=solution, {rule}
    cost=lambda size, world_size, element_bytes: Cost(0, 0, 0, 0, 0),
)
'''


@pytest.fixture
def broken_problems(tmp_path: Path) -> Path:
    """One whose inputs are zero, one whose comparison accepts anything."""
    folder = tmp_path / "problems"
    folder.mkdir()
    zero = BROKEN.format(id=901, name="zero_inputs", inputs="* 0", rule="")
    lax = BROKEN.format(id=902, name="lax_rule", inputs="", rule="compare=anything,")
    (folder / "p901_zero_inputs.py").write_text(zero)
    (folder / "p902_lax_rule.py").write_text(lax)
    return folder


def test_luck_in_two_calls_is_no_pass(tmp_path: Path) -> None:
    """The last tile of every message holds zeros in the first two calls: it is not missed there."""
    zeros = "* (torch.arange(64, device=draw.device).view(8, 8) < 60 if draw.call < 2 else 1)"
    text = BROKEN.format(id=903, name="zeros_at_first", inputs=zeros, rule="")
    (tmp_path / "p903_zeros_at_first.py").write_text(text)
    done = lint("903", "--ranks", "2", "--dtype", "fp32", "--problems-dir", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_broken_problems_are_found_out(broken_problems: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    done = lint("901,902", "--ranks", "2", "--dtype", "fp32", "--problems-dir", broken_problems, "--json", out)
    assert "Traceback" not in done.stderr
    assert done.returncode == 1, done.stdout + done.stderr
    passed: dict[int, set[str]] = {901: set(), 902: set()}
    for row in json.loads(out.read_text()):
        if row["passed"]:
            passed[row["problem_id"]].add(row["null_candidate"])
    assert {"zeros", "own_input", "no_communication", "previous_call"} <= passed[901]
    assert "uninitialised" not in passed[901], "garbage is still told from zeros"
    assert {"zeros", "constant", "uninitialised", "no_communication"} <= passed[902]
    assert "zero_inputs: zeros passes" in done.stdout
    assert "lax_rule: uninitialised passes" in done.stdout


def test_the_judge_itself_finds_them(broken_problems: Path) -> None:
    """The same below the command line."""
    from pkb.judge.oracle_only.lint import lint as run_lint
    from pkb.problems.registry import load_folder

    rows = run_lint(
        load_folder(broken_problems), platform="cpu", sizes=["tiny"], world_sizes=[2], dtypes=["fp32"],
        problems_folder=broken_problems,
    )  # fmt: skip
    passed = {(row.problem_id, row.null_candidate) for row in rows if row.passed}
    assert {(901, "zeros"), (902, "zeros"), (902, "uninitialised")} <= passed
    assert (901, "uninitialised") not in passed


def test_nothing_checked_is_no_proof() -> None:
    """54 does not exist with 5 ranks: status 2, not 0."""
    done = lint("13", "--ranks", "5", "--dtype", "bf16")
    assert done.returncode == 2
    assert "nothing was checked" in done.stdout
