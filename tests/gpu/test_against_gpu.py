"""Baseline, reference and torch's symmetric-memory operators of made-up problems, on one GPU that two ranks share."""

from pathlib import Path

import pytest

from pkb.judge.oracle_only.references import run_references
from pkb.judge.oracle_only.world import running
from pkb.judge.session import evaluate
from pkb.problems.registry import load_folder
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.plan import Plan
from pkb.types.stock import STOCK_FUNCTIONS, Against
from pkb.types.verdict import Evaluation, Verdict

pytestmark = pytest.mark.gpu

TIMED = Plan("quick", trials=1, odd_trials=0, second_world_trials=0, race_calls=0, race_repeats=0, timing_rounds=4,
             calls_per_round=5, warmup_calls=5, verify_share=0.2)  # fmt: skip
PROBLEM = """
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

SIZES = {"tiny": {"n": 1 << 12}, "paper": {"n": 1 << 18}}
WORLD_SIZES = (2,)
buffers = {}


def inputs(draw):
    return {"x": draw.normal("x", (draw.size["n"],))}


def solution(x):
    total = torch.zeros_like(x)
    for part in range(4):
        piece = torch.zeros_like(x)
        chunk = slice(part * x.numel() // 4, (part + 1) * x.numel() // 4)
        piece[chunk] = x[chunk]
        dist.all_reduce(piece)
        total = total + piece
    return total


def baseline(x):
    total = x.clone()
    dist.all_reduce(total)
    return total


def exact(x):
    return baseline(x)


def stock_symmetric(x):
    name = dist.group.WORLD.group_name
    if (key := (x.shape, x.dtype)) not in buffers:
        buffers[key] = symm_mem.empty(x.shape, dtype=x.dtype, device=x.device)
        symm_mem.rendezvous(buffers[key], name)
    buffers[key].copy_(x)
    return torch.ops.symm_mem.one_shot_all_reduce(buffers[key], "sum", name)
"""
NO_ROOM = """

def solution(x):
    return torch.empty(1 << 44, dtype=torch.uint8, device=x.device)
"""
CANDIDATE = """
import torch
import torch.distributed as dist


def solution(x):
    total = x.clone()
    dist.all_reduce(total)
    return total
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p901_my_sum.py").write_text(PROBLEM)
    return tmp_path


def judged(folder: Path, against: Against, *, starts: int = 0) -> Evaluation:
    candidate = folder / "901_my_sum_torch.py"
    candidate.write_text(CANDIDATE)
    case = Case("901", "virtual", 2, "paper", "fp32", "quick")
    return evaluate(Job(candidate, case, custom_plan=TIMED, against=against, problems_folder=folder, starts=starts))


def test_each_function_is_compared_and_timed_by_its_name(folder: Path) -> None:
    with running("virtual", 2) as platform:
        for function in STOCK_FUNCTIONS:
            (row,) = run_references(
                load_folder(folder),
                platform=platform,
                size="paper",
                world_size=2,
                function=function,
                problems_folder=folder,
            )
            print(f"{function}: {row.time_us} us, peak {row.peak_bytes} bytes, error ratio {row.compared}")
            assert (row.function, row.error, row.compare_error) == (function, "", "")
            assert row.time_us
            assert (row.compared is None) == (function == "reference")


@pytest.mark.parametrize("against", ["baseline", "reference"])
def test_a_verdict_has_both_readings(folder: Path, against: Against) -> None:
    result = judged(folder, against)
    assert result.verdict is Verdict.CORRECT, result.detail
    timing = result.timing
    assert timing is not None
    assert timing.other is not None
    assert {timing.against, timing.other.against} == {"baseline", "reference"}
    print(
        f"{timing.speedup:.2f}x against the {against}, {timing.other.speedup:.2f}x against the other; {result.stage_seconds}"
    )
    assert result.profile is not None


def test_ranks_are_started_again_and_what_starts_differ_by_is_in_the_interval(folder: Path) -> None:
    result = judged(folder, "baseline", starts=3)
    assert result.verdict is Verdict.CORRECT, result.detail
    timing = result.timing
    assert timing is not None
    assert len(timing.start_rounds) == 3
    assert sum(timing.start_rounds) == timing.rounds
    print(
        f"{timing.speedup:.3f}x ({timing.speedup_low:.3f} to {timing.speedup_high:.3f}) of itself; {result.stage_seconds}"
    )
    assert timing.other is not None
    assert result.profile is not None


def test_a_reference_without_room_costs_its_reading_and_the_profile_only(folder: Path) -> None:
    (folder / "p901_my_sum.py").write_text(PROBLEM + NO_ROOM)
    result = judged(folder, "baseline")
    assert result.verdict is Verdict.CORRECT, result.detail
    assert result.timing is not None
    assert result.timing.other is None
    assert any(check.startswith("no speedup against the reference") for check in result.checks), result.checks
