"""Every baseline that was tried and not taken passes the comparison of its problem, on ranks of a CPU."""

from pathlib import Path

import pytest

from pkb.judge.oracle_only.references import ReferenceRow, run_references
from pkb.judge.oracle_only.world import running
from pkb.platforms.registry import resolve
from pkb.problems.registry import load_folder

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "alternatives"
TRACED = """
import functools

import torch

import pkb.problems.compiled

pkb.problems.compiled.ON = ("cpu",)
torch.compile = functools.partial(torch.compile, backend="aot_eager")
"""


def rows_of(folder: Path, ranks: int) -> list[ReferenceRow]:
    alternatives = load_folder(folder)
    with running(resolve("cpu"), ranks) as platform:
        rows = run_references(
            alternatives, platform=platform, size="tiny", world_size=ranks, calls=1, function="baseline",
            problems_folder=folder,
        )  # fmt: skip
    assert {row.id for row in rows} == {alternative.id for alternative in alternatives}
    assert not [f"{row.name}: {row.error}{row.compare_error}" for row in rows if row.error or row.compare_error]
    assert all(row.compared is not None and row.compared <= 0.8 for row in rows)
    return rows


@pytest.mark.slow
def test_each_passes_with_four_ranks() -> None:
    rows_of(FOLDER, 4)


@pytest.mark.slow
def test_what_is_compiled_is_one_graph_and_passes(tmp_path: Path) -> None:
    """Traced as on a GPU, and run by torch's operators: Inductor would take a compiler of C++ and minutes."""
    for path in FOLDER.glob("p*.py"):
        if "problems.compiled" in (text := path.read_text()):
            (tmp_path / path.name).write_text(text + TRACED)
    assert len(rows_of(tmp_path, 2)) > 10
