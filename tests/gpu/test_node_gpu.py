"""As much of `node` as one GPU can show: one rank with all stages, two ranks time-sliced on a GPU without MPS, and blame.

Without MPS two processes on a GPU get slices of milliseconds, so a barrier between them takes as long: right or wrong can be
found out so, a time cannot. What is shown is what `virtual` cannot: no MPS, a /dev/shm of the side's own, handles of memory
that go through sockets behind the sandbox.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from pkb.judge.session import evaluate
from pkb.platforms import registry
from pkb.platforms.base import PlatformFacts
from pkb.platforms.cuda import gpus
from pkb.platforms.nccl import suitable_nccl
from pkb.platforms.node import NodePlatform
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.plan import Plan
from pkb.types.verdict import Evaluation, FailureKind, Verdict

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]
DEMO = ROOT / "src" / "pkb" / "cli" / "demo_candidates" / "1_allreduce_symmetric.py"
CUDA = ROOT / "tests" / "adversaries" / "gpu" / "honest_all_reduce_cuda.py"
CORRECTNESS = Plan("quick", trials=2, odd_trials=1, second_world_trials=0, race_calls=0, race_repeats=0, timing_rounds=0,
                   calls_per_round=0, warmup_calls=0, verify_share=0)  # fmt: skip
TIMED = replace(CORRECTNESS, race_calls=4, race_repeats=1, timing_rounds=3, calls_per_round=5, warmup_calls=3,
                verify_share=0.5)  # fmt: skip


class OneGpuNode(NodePlatform):
    fewest_gpus = 1


class TakingTurns(OneGpuNode):
    """All ranks on the first GPU, without MPS."""

    def facts(self) -> PlatformFacts:
        return replace(super().facts(), max_ranks=2)

    def device_indices(self, world_size: int) -> list[int]:
        return [0] * world_size

    def cores(self, world_size: int) -> list[tuple[int, ...]]:
        return []

    def environment(self, world_size: int) -> dict[str, str]:
        return super().environment(1) | {
            "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES": "1",
            "NCCL_MULTI_RANK_GPU_ENABLE": "1",
            "NCCL_NVLS_ENABLE": "0",
            "NCCL_MAX_CTAS": "8",
            "LD_PRELOAD": str(suitable_nccl()),
        }

    def readable(self) -> list[str]:
        nccl = suitable_nccl()
        return [str(nccl.parent)] if nccl else []


def judged(
    monkeypatch: pytest.MonkeyPatch, platform: type[NodePlatform], candidate: Path, *, ranks: int, plan: Plan
) -> Evaluation:
    monkeypatch.setitem(registry.PLATFORMS, "node", platform)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus()[0].uuid)
    case = Case("1", "node", ranks, "tiny", "bf16", "quick")
    return evaluate(Job(candidate, case, custom_plan=plan, call_limit_s=60.0))


@pytest.mark.parametrize("candidate", [DEMO, CUDA], ids=["torch", "cuda"])
def test_one_rank_with_all_stages(candidate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, OneGpuNode, candidate, ranks=1, plan=TIMED)
    assert found.verdict is Verdict.CORRECT, f"{found.detail}\n{found.output_tail}"
    assert found.timing is not None
    print(
        {name: found.environment.get(name) for name in ("driver", "clocks", "throttling", "multicast", "power limit")}
    )
    assert found.environment["other processes on the GPU"] == "none"
    assert found.isolation["shm"].startswith("on"), "no MPS: each side has a /dev/shm of its own"


@pytest.mark.parametrize("candidate", [DEMO, CUDA], ids=["torch", "cuda"])
def test_two_ranks_that_take_turns_are_right(candidate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if suitable_nccl() is None:
        pytest.skip("no NCCL here that lets two ranks share a GPU")
    found = judged(monkeypatch, TakingTurns, candidate, ranks=2, plan=CORRECTNESS)
    assert found.verdict is Verdict.CORRECT, f"{found.detail}\n{found.output_tail}"


HOG = """
import torch
import torch.distributed._symmetric_memory as symm_mem

_taken = []


def solution(tensor: torch.Tensor) -> torch.Tensor:
    result = tensor.clone()
    for size in (4 << 30, 256 << 20, 2 << 20):
        while True:
            try:
                _taken.append(symm_mem.empty(size, dtype=torch.uint8, device=tensor.device))
            except RuntimeError:
                break
    return result
"""


def test_a_candidate_that_starves_the_oracle_is_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = tmp_path / "1_allreduce_hog.py"
    candidate.write_text(HOG)
    found = judged(monkeypatch, OneGpuNode, candidate, ranks=1, plan=CORRECTNESS)
    print(found.verdict, found.detail)
    assert found.verdict is not Verdict.HARNESS_ERROR, found.detail
    if found.verdict is Verdict.CRASH:
        assert found.failure is not None
        assert found.failure.kind is FailureKind.MEMORY_LIMIT


def test_ranks_see_their_gpu_by_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    """`virtual` too: the MPS server and its clients are told the same GPU by name."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus()[0].uuid[:12])
    case = Case("1", "virtual", 2, "tiny", "bf16", "quick")
    found = evaluate(Job(DEMO, case, custom_plan=CORRECTNESS, call_limit_s=60.0))
    assert found.verdict is Verdict.CORRECT, f"{found.detail}\n{found.output_tail}"
    assert found.environment["gpu"] == gpus()[0].name
