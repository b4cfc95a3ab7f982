"""Weak execution: synchronisation that is missing gives wrong numbers, and what is there is enough for right ones."""

import subprocess
import sys
from pathlib import Path

import pytest
import weak_litmus
from weak_litmus import CASES

from pkb.kit.emulated.gxx import find_gxx

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(isinstance(find_gxx(), str), reason="no C++ compiler that can build the emulator")
RIGHT = [number for number, case in enumerate(CASES) if case.right]
WRONG = [number for number, case in enumerate(CASES) if not case.right]
QUICK = "sys -> gpu"
"""Mutants of which there are two: of the release and of the acquire."""
KERNELS = ("01 one-shot", "01 two-shot", "02", "08")
"""Of which each mutant by strength or scope is run: those are right in the ordinary one, whatever the order of threads."""


def _names(numbers: dict[int, list[int]], *, wrong: bool) -> list[str]:
    return [CASES[number].name for number, counts in numbers.items() if any(counts) is wrong]


@pytest.fixture(scope="module")
def litmus() -> dict[int, list[int]]:
    return weak_litmus.run(list(range(len(CASES))), range(3))


def test_missing_synchronisation_gives_wrong_numbers_within_three_seeds(litmus: dict[int, list[int]]) -> None:
    assert _names({number: litmus[number] for number in WRONG}, wrong=False) == []


def test_sufficient_synchronisation_gives_right_ones(litmus: dict[int, list[int]]) -> None:
    assert _names({number: litmus[number] for number in RIGHT}, wrong=True) == []


def test_the_ordinary_execution_shows_nothing_of_it() -> None:
    """Else weak execution would not be needed, and the test above would show something else."""
    by_order = [number for number in WRONG if "store" in CASES[number].name or "scope" in CASES[number].name]
    found = weak_litmus.run(by_order, range(1), weak=False)
    assert len(by_order) >= 8
    assert _names(found, wrong=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", RIGHT, ids=[CASES[number].name for number in RIGHT])
def test_sufficient_synchronisation_is_right_for_many_seeds(number: int) -> None:
    assert not any(weak_litmus.run([number], range(100, 200))[number])


def _lines(*options: str) -> list[list[str]]:
    """In a process of its own: ranks are forked from it."""
    command = [sys.executable, str(HERE / "weak_runs.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [line.split(" | ") for line in done.stdout.splitlines()]


def test_a_kernel_of_ours_is_right_and_weakened_wrong() -> None:
    honest, *mutants = _lines("--kernel", "01 two-shot", "--only", QUICK)
    assert honest[-1] == "right"
    assert len(mutants) == 2
    assert all("values differ" in said for *_, said in mutants), mutants


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_mutants_that_compute_right_in_the_ordinary_run_give_wrong_numbers(kernel: str) -> None:
    options = ("--kernel", kernel, "--only=->", "--world", "3")
    weak, ordinary = _lines(*options, "--seeds", "3"), _lines(*options, "--strong")
    assert all(said == "right" for _, _, mutant, said in weak if mutant == "honest")
    right = {mutant for _, _, mutant, said in ordinary if said == "right"} - {"honest"}
    wrong = {mutant for _, _, mutant, said in weak if said != "right"}
    assert len(right & wrong) >= 5, (right, wrong)


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3, 4, 8])
def test_honest_cuda_is_right(world: int) -> None:
    rows = _lines("--files", "--world", str(world)) + _lines("--honest", "--world", str(world))
    assert len(rows) > 50
    assert [row for row in rows if row[-1] != "right"] == []
