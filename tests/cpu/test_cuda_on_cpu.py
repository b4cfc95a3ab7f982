"""CUDA candidates judged with no GPU: those kept for GPUs get the same verdicts, and what is not emulated is named."""

import dataclasses
import re
import textwrap
from pathlib import Path

import pytest

from pkb.candidates.rules import inspect_source
from pkb.candidates.source import read
from pkb.judge import check as checking
from pkb.judge.session import evaluate
from pkb.judge.stages.build import BuildReport
from pkb.judge.stages.build import prebuild as really_build
from pkb.judge.stages.prepare import why_unsupported
from pkb.kit.emulated.gxx import WHAT_TO_INSTALL, find_gxx
from pkb.platforms.cpu import CpuPlatform
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Communication, Evaluation, Stage, Verdict

KEPT = Path(__file__).parents[1] / "adversaries" / "gpu"
pytestmark = pytest.mark.skipif(isinstance(find_gxx(), str), reason=str(find_gxx()))


def judge(candidate: Path, *, ranks: int = 2, call_limit_s: float = 20.0, problem: str = "1") -> Evaluation:
    return evaluate(Job(candidate, Case(problem, "cpu", ranks, "tiny", "bf16", "quick"), call_limit_s=call_limit_s))


def test_without_a_compiler_the_verdict_says_what_to_install() -> None:
    inspection = inspect_source(read(EXTENSION))
    here = CpuPlatform().facts()
    assert not why_unsupported(inspection, here)
    there = dataclasses.replace(here, capabilities=("torch", "cpp"), without_cuda=WHAT_TO_INSTALL)
    assert why_unsupported(inspection, there) == f"the cpu platform cannot run cuda candidates: {WHAT_TO_INSTALL}"


def test_without_a_compiler_for_gpus_pkb_check_builds_by_gxx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prebuild(path: Path, *, limit_s: float, environment: dict[str, str]) -> BuildReport:
        if environment:
            return really_build(path, limit_s=limit_s, environment=environment)
        return BuildReport(tmp_path / "build" / "artifacts", unavailable="no CUDA compiler here")

    monkeypatch.setattr(checking, "prebuild", prebuild)
    report = checking.check(KEPT / "honest_all_reduce_cuda.py", build_limit_s=60.0)
    assert report.ok
    assert "by g++ for the platform cpu" in report.detail
    assert not report.machine_code
    assert checking.check(KEPT / "cuda_does_not_compile.py", build_limit_s=60.0).verdict is Verdict.COMPILE_ERROR


def test_an_honest_kernel_of_the_kit_is_correct_and_says_how_well_it_was_modelled() -> None:
    result = judge(KEPT / "honest_all_reduce_cuda.py")
    assert (result.verdict, result.stage, result.communication) == (Verdict.CORRECT, Stage.DONE, Communication.CUSTOM)
    assert result.timing is None
    assert any("times on an emulated GPU mean nothing" in check for check in result.checks)
    assert "order not modelled" in result.fidelity.values()
    assert all(re.match(r"[a-z]", name) for name in result.fidelity)


EXTENSION = Path(__file__).with_name("cuda_extension.py")
CHANGES = {
    "honest": ("", ""),
    "wrong": ("peer < world; ++peer) sum", "peer < world - 1; ++peer) sum"),
    "no start barrier": ("  meet(pads, rank, world, 2 * blockIdx.x);\n", "  __syncthreads();\n"),
    "never signalled": ("    put(reinterpret_cast", "    if (rank != 1) put(reinterpret_cast"),
    "not joined": ("    torch.cuda.current_stream().wait_stream(_SIDE)\n", ""),
}


def changed(folder: Path, change: str) -> Path:
    text, (old, new) = EXTENSION.read_text(), CHANGES[change]
    assert not old or text.count(old) == 1
    path = folder / "candidate.py"
    path.write_text(text.replace(old, new) if old else text)
    return path


def test_an_extension_is_correct(tmp_path: Path) -> None:
    result = judge(changed(tmp_path, "honest"), ranks=3)
    assert (result.verdict, result.communication) == (Verdict.CORRECT, Communication.CUSTOM)
    assert result.fidelity["atom.global.sys.acquire.cas.b32"] == "order not modelled"


def test_an_extension_is_wrong(tmp_path: Path) -> None:
    result = judge(changed(tmp_path, "wrong"))
    assert (result.verdict, result.stage) == (Verdict.WRONG, Stage.CORRECTNESS)


def test_a_missing_start_barrier_is_found(tmp_path: Path) -> None:
    """A rank that comes late has not written yet what the others read."""
    assert judge(changed(tmp_path, "no start barrier")).verdict in (Verdict.RACE, Verdict.WRONG)


def test_a_side_stream_that_is_not_joined_is_found(tmp_path: Path) -> None:
    """Its work is late, and so reads arguments that are overwritten by then, or leaves the result unwritten."""
    result = judge(changed(tmp_path, "not joined"))
    assert result.verdict in (Verdict.RACE, Verdict.WRONG)


def test_a_signal_that_is_never_sent_is_a_deadlock_that_names_it(tmp_path: Path) -> None:
    result = judge(
        changed(tmp_path, "never signalled"), call_limit_s=8.0
    )  # with time to get to its wait on a busy machine
    assert result.verdict is Verdict.DEADLOCK
    waiting = next(state.where for state in result.rank_states if state.rank == 0)
    assert re.search(
        r"kernel reduce<__nv_bfloat16, 8>, block \d+, thread 1 waits for word \d+ of the signal pad of rank 0 "
        r"\(rank 1 sets it on channel \d+ by torch's layout\), which is 0: atom.global.sys.acquire.cas.b32 in line \d+ .*"
        r"no block of another rank has set it: block \d+ of rank 1 has not ended in launch 1 \(reduce<__nv_bfloat16, 8>\)",
        waiting,
    )


def test_a_trap_ends_the_rank() -> None:
    result = judge(KEPT / "kernel_traps.py")
    assert result.verdict is Verdict.CRASH
    assert "trap" in result.output_tail


CANDIDATE = '''
import torch
from pkb import kit

KERNEL = kit.compile(r"""
extern "C" __global__ void work(const unsigned short* in, unsigned short* out, long long n) {{
  {body}
}}
""").kernel("work")


def solution(tensor):
    out = torch.empty_like(tensor)
    KERNEL[4, 64](tensor.contiguous(), out, tensor.numel())
    return out
'''


def kernel(folder: Path, body: str) -> Path:
    path = folder / "candidate.py"
    path.write_text(textwrap.dedent(CANDIDATE).format(body=body))
    return path


def test_an_instruction_that_is_not_known_is_unsupported_by_its_name_when_it_runs(tmp_path: Path) -> None:
    result = judge(kernel(tmp_path, 'asm volatile("wgmma.fence.sync.aligned;");'))
    assert result.verdict is Verdict.UNSUPPORTED
    assert "wgmma.fence.sync.aligned (kernel.cu, line 3, kernel work)" in result.detail


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("*(uint4*)(out + 1) = uint4{};", "misaligned address"),
        ("if (threadIdx.x == 3) *(volatile int*)8 = 1;", "illegal memory access (address 0x8)"),
        ("if (blockIdx.x == 2) __trap();", "trap"),
    ],
)
def test_a_fault_of_a_kernel_is_a_crash_that_names_the_line(body: str, fault: str, tmp_path: Path) -> None:
    result = judge(kernel(tmp_path, body))
    assert result.verdict is Verdict.CRASH
    assert re.match(rf"rank [01]: {re.escape(fault)}, kernel work, block \(", result.detail), result.detail
    assert f"line 7 (kernel.cu:3): {body}" in result.detail


def test_a_source_that_is_no_cuda_does_not_compile(tmp_path: Path) -> None:
    result = judge(kernel(tmp_path, "int x = ;"))
    assert (result.verdict, result.stage) == (Verdict.COMPILE_ERROR, Stage.BUILD)


def test_a_name_that_the_emulator_lacks_is_not_held_against_the_candidate(tmp_path: Path) -> None:
    result = judge(kernel(tmp_path, "out[0] = __vabsdiffu4(in[0], in[1]);"))
    assert (result.verdict, result.stage) == (Verdict.UNSUPPORTED, Stage.BUILD)
    assert "line 7 of the candidate: kernel.cu:3" in result.detail
    assert "__vabsdiffu4" in result.detail
    assert "docs/cuda-on-cpu.md" in result.detail


def test_a_special_register_that_is_not_known_is_named(tmp_path: Path) -> None:
    """Of `mov.u32` the operand alone says what is missing."""
    result = judge(kernel(tmp_path, 'unsigned x; asm volatile("mov.u32 %0, %%nobody;" : "=r"(x)); out[0] = x;'))
    assert result.verdict is Verdict.UNSUPPORTED
    assert "mov.u32 %0, %%nobody" in result.detail


@pytest.mark.parametrize(
    ("grid", "verdict"), [(4, Verdict.WRONG), (3, Verdict.RUNTIME_ERROR)], ids=["whole clusters", "half a cluster"]
)
def test_a_grid_is_whole_clusters(tmp_path: Path, grid: int, verdict: Verdict) -> None:
    path = kernel(tmp_path, "if (blockIdx.x == 0) out[threadIdx.x] = 0;")
    text = path.read_text().replace("__global__ void work", "__global__ void __cluster_dims__(2) work")
    path.write_text(text.replace("KERNEL[4,", f"KERNEL[{grid},"))
    assert judge(path).verdict is verdict
