"""What the profiler sees on a GPU: the names that the analysis relies on, and profiles of real candidates on `virtual`.

`pytest --gpu tests/gpu/test_profile_gpu.py -s` prints a summary of each profile.
"""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from pkb.cli.panel import profile_words
from pkb.judge.profile.calls import CALLS, records_of
from pkb.judge.profile.roles import base_name
from pkb.judge.session import evaluate
from pkb.platforms.cuda import cuda_environment
from pkb.rank.profile import device_events, pack_records
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.profile import SideProfile
from pkb.types.verdict import Communication, Evaluation, Verdict

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]
ADVERSARIES = ROOT / "tests" / "adversaries" / "gpu"
STAGE_LIMIT_S = 5.0
"""Usually below a second; the first use of the profiler in a process loads CUPTI."""


@cache
def judged(path: Path, problem: str, ranks: int = 2) -> Evaluation:
    evaluation = evaluate(Job(path, Case(problem, "virtual", ranks, "tiny", "bf16", "quick"), call_limit_s=60.0))
    assert evaluation.verdict is Verdict.CORRECT, evaluation.detail
    print(f"\n{path.name}: {[check for check in evaluation.checks if 'profil' in check]} {evaluation.stage_seconds}")
    if evaluation.profile is not None:
        for name, side in (("candidate", evaluation.profile.candidate), ("reference", evaluation.profile.reference)):
            print(f"  {name}: {profile_words(side) if side else evaluation.profile.note}")
            for use in side.top if side else ():
                print(f"    {use.role:13} {use.per_call:6.3g} x {use.us_per_call:8.1f} us  {use.name}")
            for seen in side.observed_paths if side else ():
                print(f"    {seen.path}: {seen.evidence}")
    return evaluation


def sides(evaluation: Evaluation) -> tuple[SideProfile, SideProfile]:
    profile = evaluation.profile
    assert profile is not None, evaluation.checks
    assert profile.candidate is not None, profile.note
    assert profile.reference is not None, profile.note
    return profile.candidate, profile.reference


def paths(side: SideProfile) -> set[str]:
    return {seen.path for seen in side.observed_paths}


def test_records_of_known_work() -> None:
    a = torch.ones(1024, 1024, device="cuda")
    b = torch.empty_like(a)
    torch.mm(a, a)
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()
    with device_events(wanted=True) as events:
        torch.cuda._sleep(100_000)
        torch.mm(a, a)
        b.copy_(a)
        torch.cuda.synchronize()
    activity = pack_records(events)
    assert activity.left_out == 0
    records = records_of(activity)
    assert [base_name(record.name) for record in records].count("spin_kernel") == 1, records
    copies = [record for record in records if record.kind == "memcpy"]
    assert len(copies) == 1
    assert copies[0].name.startswith("Memcpy DtoD")
    assert copies[0].bytes in (None, a.numel() * 4)
    assert {record.kind for record in records} == {"kernel", "memcpy"}
    starts = [record.start_ns for record in records]
    assert starts == sorted(starts)
    assert starts[0] == 0
    assert records[0].duration_ns > 10_000, "a spin of 100,000 cycles takes some 50 us"


def test_records_are_taken_without_importing_a_compiler() -> None:
    """torch.profiler.profile imports torch._inductor when it starts, which takes seconds in every rank."""
    look = (
        "import sys, torch\nfrom pkb.rank.profile import device_events\n"
        "with device_events(wanted=True) as events:\n"
        "    torch.ones(1000, device='cuda').add_(1)\n"
        "    torch.cuda.synchronize()\n"
        "assert len(events) > 0 and events.zero_ns > 0\n"
        "assert not {'torch._inductor', 'torch._dynamo'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", look], check=True, timeout=120)


def test_a_product_and_its_sum_in_one_launch() -> None:
    """What the kernel does at the smallest size."""
    evaluation = judged(ROOT / "solutions" / "13_gemm_allreduce_cuda.py", "13")
    candidate, reference = sides(evaluation)
    assert (candidate.calls, reference.calls) == (CALLS, CALLS)
    assert candidate.kernels_per_call == 1
    assert any("fused_bf16" in use.name and use.per_call == 1 for use in candidate.top), candidate.top
    assert "library" not in paths(candidate)
    assert evaluation.communication is Communication.CUSTOM
    assert "library" in paths(reference)
    assert reference.communication_us > 0
    assert reference.overlap is not None
    assert reference.overlap < 0.2, "the reference multiplies, then reduces"
    for side in (candidate, reference):
        begins = [rank.begins_us or 0.0 for rank in side.ranks]
        assert min(begins) == 0.0
        assert max(begins) < 50_000, "both ranks leave one barrier, though they may take turns on the device"
        print(f"  begins: {begins}")
        assert [rank.rank for rank in side.ranks] == [0, 1]
        for rank in side.ranks:
            assert 0 < rank.busy_us <= rank.communication_us + rank.compute_us + rank.fused_us + 0.01
            assert rank.timeline
            assert rank.timeline[0][0] == 0.0
            assert rank.begins_us is not None, "this torch does not say when its profile began"
            assert not any("spin_kernel" in row[2] for row in rank.timeline), "the harness's own kernels are left out"
    assert evaluation.stage_seconds["profile"] < STAGE_LIMIT_S


def test_the_librarys_kernels_are_seen() -> None:
    evaluation = judged(ADVERSARIES / "library_nccl.py", "1")
    candidate, reference = sides(evaluation)
    assert evaluation.communication is Communication.LIBRARY
    assert "library" in paths(candidate)
    assert any("nccl" in use.name and use.role == "communication" for use in candidate.top)
    assert candidate.communication_us > 0
    assert reference.kernels_per_call >= 1


def test_torchs_own_reduction_on_symmetric_memory_is_library_code() -> None:
    candidate, _ = sides(judged(ADVERSARIES / "library_symm_mem_reduction.py", "1"))
    assert "library" in paths(candidate), candidate.top


def test_torch_operations_on_peers_tensors_give_no_false_overlap() -> None:
    """Their kernels have torch's usual names, so which of them read a peer's memory cannot be seen."""
    candidate, _ = sides(judged(ADVERSARIES / "honest_torch_on_symmetric_memory.py", "1"))
    assert candidate.kernels_per_call + candidate.copies_per_call >= 1
    assert candidate.overlap is None
    assert candidate.overlap_note


def test_a_side_stream_is_part_of_the_call() -> None:
    candidate, _ = sides(judged(ADVERSARIES / "honest_side_stream.py", "1"))
    assert candidate.kernels_per_call >= 1
    assert candidate.busy_us > 0


PROFILED = """
import ctypes, sys, time
import torch
from pkb.rank.profile import device_events

x = torch.ones(64, 64, device="cuda")
for _ in range(2):
    with device_events(wanted=True) as events:
        (x @ x).sum().item()
    assert len(events) > 0, "the profiler sees nothing the second time"
    time.sleep(0.5)
    torch.cuda.synchronize()  # a call of CUDA, at whose end CUPTI is let go of
(path,) = {line.split()[-1] for line in open("/proc/self/maps") if "libcupti" in line}
subscriber = ctypes.c_void_p()
callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)(lambda *_: None)
print(ctypes.CDLL(path).cuptiSubscribe(ctypes.byref(subscriber), callback, None))
"""


@pytest.mark.parametrize("let_go", [True, False])
def test_ranks_let_go_of_the_profiler(let_go: bool) -> None:
    """CUPTI has room for one: whoever comes next gets in only if torch's profiler has left. Without what ranks are told it
    stays, and makes each call of CUDA slower in the processes that were profiled, which are the candidate's alone."""
    environment = os.environ | (cuda_environment() if let_go else {"TEARDOWN_CUPTI": "0"})
    done = subprocess.run(
        [sys.executable, "-c", PROFILED], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (int(done.stdout.split()[-1]) == 0) == let_go, done.stdout + done.stderr[-500:]
