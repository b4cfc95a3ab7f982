"""CUDA candidates judged with no GPU: those kept for GPUs get the same verdicts, and what is not emulated is named."""

import re
import textwrap
from pathlib import Path

import pytest

from pkb.judge.session import evaluate
from pkb.kit.emulated.gxx import find_gxx
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Communication, Evaluation, RaceKind, Stage, Verdict

KEPT = Path(__file__).parents[1] / "adversaries" / "gpu"
pytestmark = pytest.mark.skipif(isinstance(find_gxx(), str), reason=str(find_gxx()))


def judge(candidate: Path, *, ranks: int = 2, call_limit_s: float = 20.0, problem: str = "1") -> Evaluation:
    return evaluate(Job(candidate, Case(problem, "cpu", ranks, "tiny", "bf16", "quick"), call_limit_s=call_limit_s))


def test_an_honest_kernel_of_the_kit_is_correct_and_says_how_well_it_was_modelled() -> None:
    result = judge(KEPT / "honest_all_reduce_cuda.py")
    assert (result.verdict, result.stage, result.communication) == (Verdict.CORRECT, Stage.DONE, Communication.CUSTOM)
    assert result.timing is None
    assert any("emulated GPU has no times" in check for check in result.checks)
    assert "order not modelled" in result.fidelity.values()
    assert all(re.match(r"[a-z]", name) for name in result.fidelity)


def test_an_extension_as_candidates_for_upstream_write_it_is_correct() -> None:
    assert judge(KEPT / "honest_upstream_style.py").verdict is Verdict.CORRECT


def test_a_missing_barrier_is_a_race() -> None:
    result = judge(KEPT / "race_missing_start_barrier_cuda.py")
    assert result.verdict in (Verdict.RACE, Verdict.WRONG)  # it may be wrong in the first call already
    assert result.race_kind in (
        None,
        RaceKind.MISSING_START_BARRIER,
        RaceKind.MISSING_SYNCHRONISATION,
        RaceKind.STALE_READ,
    )


def test_a_deadlock_names_the_flag_its_value_and_who_waits() -> None:
    result = judge(KEPT / "deadlock_on_the_device.py", call_limit_s=4.0)
    assert result.verdict is Verdict.DEADLOCK
    waiting = next(state.where for state in result.rank_states if state.rank == 0)
    assert re.search(
        r"kernel all_reduce, block \d+, thread \d+ waits for word \d+ of the signal pad of rank 0 "
        r"\(rank 1 sets it on channel \d+ by torch's layout\), which is 0: atom.acquire.sys.global.cas.b32 in line \d+",
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
    assert "wgmma.fence.sync.aligned" in result.detail


def test_a_source_that_is_no_cuda_does_not_compile(tmp_path: Path) -> None:
    result = judge(kernel(tmp_path, "int x = ;"))
    assert (result.verdict, result.stage) == (Verdict.COMPILE_ERROR, Stage.BUILD)


def test_a_name_that_the_emulator_lacks_is_not_held_against_the_candidate(tmp_path: Path) -> None:
    result = judge(kernel(tmp_path, "out[0] = __vabsdiffu4(in[0], in[1]);"))
    assert (result.verdict, result.stage) == (Verdict.UNSUPPORTED, Stage.BUILD)
    assert "__vabsdiffu4" in result.detail
