"""Every synchronisation of our kernels, weakened by one notch, is reported as a race; the kernels themselves are not."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from equivalents import EQUIVALENT, argument_for
from kernels import BY_NAME, KERNELS, SOLUTIONS

from pkb.kit.emulated.gxx import find_gxx

HERE = Path(__file__).parent
QUICK = {"01 two-shot": "pkb.cuh", "81": "finish_grid"}
"""Kernels, and which of their mutants: a dozen and a half of builds and runs that stand for the others."""
pytestmark = pytest.mark.skipif(isinstance(find_gxx(), str), reason="no C++ compiler that can build the emulator")


def _run(tmp_path: Path, *options: str) -> list[dict[str, Any]]:
    out = tmp_path / "rows"
    command = [sys.executable, str(HERE / "mutants.py"), "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in out.read_text().splitlines()]


def _check(rows: list[dict[str, Any]]) -> None:
    honest = [row for row in rows if row["mutant"] == "honest"]
    assert honest
    assert all(not row["kinds"] and not row["trouble"] and row["events"] > 1000 for row in honest), honest
    missed = [
        row
        for row in rows
        if row["mutant"] != "honest"
        and not row["kinds"]
        and not _trapped(row)
        and not argument_for(row["kernel"], row["mutant"])
    ]
    assert not missed


def _trapped(row: dict[str, Any]) -> bool:
    """A pointer that nobody has written yet was followed: the second access of the race was never made."""
    return "ended with status 6" in row["trouble"]


@pytest.mark.parametrize("kernel", QUICK)
def test_weakened_synchronisation_is_reported(kernel: str, tmp_path: Path) -> None:
    rows = _run(tmp_path, "--kernel", kernel, "--only", QUICK[kernel])
    assert len(rows) >= 6
    _check(rows)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", BY_NAME)
def test_all_mutants_are_reported(kernel: str, tmp_path: Path) -> None:
    rows = _run(tmp_path, "--kernel", kernel)
    assert len(rows) > 10
    _check(rows)


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3, 4, 8])
def test_nothing_honest_is_reported(world: int, tmp_path: Path) -> None:
    """All of it takes more than an hour on two cores: `python tests/races/honest.py --out FILE` can be stopped and goes on."""
    out = tmp_path / "rows"
    command = [sys.executable, str(HERE / "honest.py"), "--world", str(world), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert not [row for row in rows if row["kinds"] or row["trouble"]], done.stderr[-2000:]
    assert len(rows) > 3 * len(KERNELS)
    assert all(row["events"] > 50 for row in rows)


def test_every_kernel_is_here_and_every_argument_is_for_one() -> None:
    written = {int(path.name[:2]) for path in SOLUTIONS.glob("*_cuda.py") if "__global__" in path.read_text()}
    assert {kernel.problem for kernel in KERNELS} == written
    assert {kernel for kernel, _ in EQUIVALENT} <= set(BY_NAME)
