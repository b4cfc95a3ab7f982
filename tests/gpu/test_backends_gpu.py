"""Solutions in other backends than the kit's, on a GPU; and what takes a node of several."""

import importlib.util
from pathlib import Path

import pytest

from pkb.judge.session import evaluate
from pkb.platforms.node import NodePlatform
from pkb.problems import get
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Communication, Evaluation, Verdict

pytestmark = pytest.mark.gpu
SOLUTIONS = Path(__file__).parents[2] / "solutions"
OTHERS = sorted(path for path in SOLUTIONS.glob("*.py") if not path.stem.endswith("_cuda"))
cute = pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="no CuTe DSL: pip install 'pkb[cute]'")


def judged(path: Path, platform: str, ranks: int, size: str) -> Evaluation:
    problem = get(path.name.split("_", 1)[0])
    return evaluate(Job(path, Case(problem.stem, platform, ranks, size, problem.default_dtype, "quick"), timing=False))


@cute
@pytest.mark.parametrize(
    ("name", "size", "ranks"),
    [
        ("01_allreduce", "odd", 4),
        ("01_allreduce", "paper", 8),
        ("02_allgather", "odd", 8),
        ("02_allgather", "paper", 4),
    ],
)
def test_cute_dsl_is_correct_where_ranks_share_a_gpu(name: str, size: str, ranks: int) -> None:
    found = judged(SOLUTIONS / f"{name}_cute.py", "virtual", ranks, size)
    assert found.verdict is Verdict.CORRECT, found.detail
    assert found.communication is Communication.CUSTOM
    assert found.paths == ("sm_load_store",)


@cute
def test_cute_dsl_without_its_second_meeting_is_caught(tmp_path: Path) -> None:
    text = (SOLUTIONS / "01_allreduce_cute.py").read_text()
    meeting = "    meet(signals, rank, world)  # all sums have been stored\n"
    assert text.count(meeting) == 1
    mutant = tmp_path / "01_allreduce_cute.py"
    mutant.write_text(text.replace(meeting, ""))
    assert judged(mutant, "virtual", 4, "paper").verdict in (Verdict.WRONG, Verdict.RACE)


@cute
def test_a_library_call_beside_a_kernel_of_cute_dsl_is_a_library_call(tmp_path: Path) -> None:
    """The kernel runs, and what it makes is thrown away."""
    text = (SOLUTIONS / "01_allreduce_cute.py").read_text()
    end = text.rindex("    return out\n")
    cheat = tmp_path / "01_allreduce_cute.py"
    cheat.write_text(f"{text[:end]}    out = tensor.clone()\n    dist.all_reduce(out)\n    return out\n")
    assert judged(cheat, "virtual", 4, "tiny").communication is Communication.LIBRARY


# --- for a node ------------------------------------------------------------------------------------------------------


@pytest.fixture
def gpus() -> int:
    facts = NodePlatform().facts()
    if not facts.available:
        pytest.skip(f"takes a node: {facts.why_not}")
    return facts.max_ranks


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_every_backend_is_correct_on_a_node(path: Path, gpus: int) -> None:
    found = judged(path, "node", min(gpus, 8), "paper")
    if found.verdict is Verdict.UNSUPPORTED:
        pytest.skip(found.detail)
    assert found.verdict is Verdict.CORRECT, found.detail
    assert found.communication is Communication.CUSTOM


def test_the_switch_adds_on_a_node(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """multimem: what no GPU has by itself."""
    if "multicast" not in NodePlatform().facts().capabilities:
        pytest.skip("no multicast: the GPUs are not on an NVSwitch")
    monkeypatch.setenv("PKB_NVLS", "1")
    found = judged(SOLUTIONS / "01_allreduce_cuda.py", "node", min(gpus, 8), "paper")
    assert found.verdict is Verdict.CORRECT, found.detail
    assert "nvls" in found.paths
