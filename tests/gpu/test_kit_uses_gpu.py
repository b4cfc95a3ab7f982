"""Uses of the kit that none of our kernels makes, judged on a GPU: its Triton side, one pipe from two streams, two pipes and
several runs and meetings in one kernel; and a debug build.
"""

from pathlib import Path

import pytest

from pkb.judge.session import evaluate
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Communication, Verdict

pytestmark = pytest.mark.gpu
TESTS = Path(__file__).parents[1]


def judged(path: Path, problem: str, *, dtype: str = "bf16", size: str = "paper") -> None:
    found = evaluate(Job(path, Case(problem, "virtual", 4, size, dtype, "quick"), timing=False))
    assert found.verdict is Verdict.CORRECT, found.detail
    assert found.communication is Communication.CUSTOM


@pytest.mark.parametrize(("size", "dtype"), [("tiny", "bf16"), ("odd", "fp32")])
def test_the_triton_side(size: str, dtype: str) -> None:
    judged(TESTS / "cpu" / "triton_kit" / "all_reduce.py", "1", size=size, dtype=dtype)


@pytest.mark.parametrize("use", ["streams", "pipes", "runs"])
def test_unusual_uses(use: str, tmp_path: Path) -> None:
    text = (TESTS / "emulator" / "unusual_use.py").read_text()
    assert text.count('USE = "streams"') == 1
    (tmp_path / "candidate.py").write_text(text.replace('USE = "streams"', f'USE = "{use}"'))
    judged(tmp_path / "candidate.py", "2")


def test_a_debug_build_is_as_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKB_KIT_DEBUG", "1")
    judged(TESTS.parent / "solutions" / "02_allgather_cuda.py", "2")
