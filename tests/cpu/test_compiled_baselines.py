"""Baselines by torch.compile in the judge's own ranks, for the CPU: compiled before anything is timed, nothing left behind."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from pkb.judge.session import evaluate_sizes
from pkb.problems import get
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.plan import Plan
from pkb.types.verdict import Verdict

TIMED = Plan("quick", trials=1, odd_trials=0, second_world_trials=0, race_calls=0, race_repeats=0, timing_rounds=2,
             calls_per_round=3, warmup_calls=1, verify_share=0.5)  # fmt: skip
PROBLEM = """
import json, sys
from dataclasses import replace

import psutil
import torch.distributed as dist
from torch._dynamo.utils import counters

from pkb.problems import compiled, get

compiled.ON = ("cpu",)


def baseline(*arguments):
    before = counters["stats"]["unique_graphs"]
    result = get({number}).baseline(*arguments)
    names = []
    frame = sys._getframe()
    while frame := frame.f_back:
        names.append(frame.f_code.co_name)
    note = {{
        "rank": dist.get_rank(), "shape": list(arguments[0].shape), "timed": "run_batch" in names,
        "compiled": counters["stats"]["unique_graphs"] - before, "children": len(psutil.Process().children()),
    }}
    with open({log!r}, "a") as file:
        file.write(json.dumps(note) + "\\n")
    return result


PROBLEM = replace(get({number}), id=9{number}, name="compiled", baseline=baseline)
"""
CANDIDATE = """
import torch
import torch.distributed as dist


"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [18, 52, 71])
def test_it_is_compiled_once_for_each_size_and_never_in_a_batch(tmp_path: Path, number: int) -> None:
    log, problems, candidate = tmp_path / "log", tmp_path / "problems", tmp_path / "candidate.py"
    problems.mkdir()
    (problems / f"p9{number}_compiled.py").write_text(PROBLEM.format(number=number, log=str(log)))
    candidate.write_text(CANDIDATE + get(number).reference_source)
    case = Case(f"9{number}", "cpu", 2, "tiny", "bf16", "quick")
    job = Job(candidate, case, custom_plan=TIMED, problems_folder=problems, call_limit_s=300.0)
    results = list(evaluate_sizes(job, ["tiny", "odd"]))
    assert [result.verdict for result in results] == [Verdict.CORRECT] * 2, [result.detail for result in results]
    assert all(result.timing is not None and result.timing.against == "baseline" for result in results)
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    for rank in (0, 1):
        own = [call for call in calls if call["rank"] == rank]
        assert len({str(call["shape"]) for call in own if call["compiled"]}) == 2, "at both sizes"
        assert [call for call in own if call["timed"]]
        assert not [call for call in own if call["timed"] and call["compiled"]]
    assert not any(call["children"] for call in calls), "a pool of compilers"
    assert not list(Path(tempfile.gettempdir()).glob(f"pkb-oracle-{os.getpid()}-*"))
