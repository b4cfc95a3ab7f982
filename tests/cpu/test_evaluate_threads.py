"""The judge called from several threads of one process, as a training loop does: docs/api.md."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pkb.judge.session import evaluate
from pkb.types.case import Case
from pkb.types.job import Job

RIGHT = """
import torch.distributed as dist

def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total
"""
HOSTILE = """
import os

def solution(tensor):
    os._exit(0)
"""
CASE = Case("01_allreduce", platform="cpu", ranks=2, size="tiny", dtype="fp32", plan="quick")


def test_threads_judge_at_the_same_time_and_a_hostile_candidate_harms_none_beside_it(tmp_path: Path) -> None:
    jobs = []
    for number, text in enumerate((RIGHT, HOSTILE, RIGHT)):
        candidate = tmp_path / f"{number}.py"
        candidate.write_text(text)
        jobs.append(Job(candidate, CASE, timing=False))
    with ThreadPoolExecutor(len(jobs)) as threads:
        verdicts = [str(found.verdict) for found in threads.map(evaluate, jobs)]
    assert (verdicts[0], verdicts[2]) == ("correct", "correct")
    assert verdicts[1] in ("rejected", "crash")
