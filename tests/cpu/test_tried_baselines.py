"""Every baseline that was tried and not taken passes the comparison of its problem, on ranks of a CPU."""

from pathlib import Path

import pytest

from pkb.judge.oracle_only.references import run_references
from pkb.judge.oracle_only.world import running
from pkb.platforms.registry import resolve
from pkb.problems.registry import load_folder

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "alternatives"


@pytest.mark.slow
def test_each_passes_with_four_ranks() -> None:
    alternatives = load_folder(FOLDER)
    with running(resolve("cpu"), 4) as platform:
        rows = run_references(
            alternatives, platform=platform, size="tiny", world_size=4, calls=1, function="baseline",
            problems_folder=FOLDER,
        )  # fmt: skip
    assert {row.id for row in rows} == {alternative.id for alternative in alternatives}
    assert not [f"{row.name}: {row.error}{row.compare_error}" for row in rows if row.error or row.compare_error]
    assert all(row.compared is not None and row.compared <= 0.8 for row in rows)
