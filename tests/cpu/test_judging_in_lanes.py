"""Two files beside each other, each judged by a process of its own; and one whose judge does not come back."""

import time
from pathlib import Path

import pytest

from pkb.types.case import Case
from pkb.types.job import Job
from program_files import ROOT, program

HONEST = ROOT / "tests" / "adversaries" / "honest"


def test_every_size_of_every_file_gets_its_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")  # where a new process finds it
    lanes = program("benchmarks/lanes.py")
    case = Case("01_allreduce", "cpu", 2, "tiny", "bf16", "quick")
    files = [HONEST / "all_reduce_symmetric.py", HONEST / "all_reduce_library.py", tmp_path / "not_there.py"]
    works = [lanes.Work(Job(path, case, timing=False, call_limit_s=60), ("tiny", "odd")) for path in files]
    found = list(lanes.judge_beside(works, lanes=2, platform="cpu", stop_at=time.monotonic() + 600))
    said = {(one.work.job.candidate.stem, one.size): one.result for one in found}
    assert len(found) == len(said) == 6
    for (name, size), result in said.items():
        if name == "not_there":
            assert "not_there.py" in result, "what became of it, and no verdict"
        else:
            assert (str(result.verdict), result.size) == ("correct", size)
