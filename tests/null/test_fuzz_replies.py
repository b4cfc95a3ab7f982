"""No reply of a rank, however malformed, raises in the judge or fills its memory: thousands of spoilt ones of every kind."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pkb.types.protocol.commands import CANDIDATE_COMMANDS, ORACLE_COMMANDS

HERE = Path(__file__).parent
CASES = 2100
MOST_BYTES = 300_000_000
SEED = 20_240


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    """In a process of its own, whose memory is then that of the judge alone. The package may be on our path only."""
    path = os.pathsep.join([str(HERE), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, str(HERE / "fuzz_replies.py"), str(SEED), str(CASES)],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_stages_pass_while_nobody_lies(run: dict[str, Any]) -> None:
    assert set(run["untouched"].values()) == {"no verdict"}


def test_every_spoilt_reply_ends_in_a_report_or_a_verdict(run: dict[str, Any]) -> None:
    assert run["broken"] == []
    assert run["fake_ranks_status"] == 0
    assert sum(run["endings"].values()) == CASES
    assert set(run["endings"]) <= {"no verdict", "rejected", "harness_error", "wrong", "race", "crash", "runtime_error"}
    assert run["endings"]["rejected"] > CASES // 4, "most lies of a candidate's rank are seen"


def test_every_kind_of_reply_was_spoilt(run: dict[str, Any]) -> None:
    kinds = {kind.__name__ for command in (*CANDIDATE_COMMANDS, *ORACLE_COMMANDS) for kind in command.replies}
    assert kinds | {"Ready"} == set(run["spoilt"]) - {""}
    assert sum(run["spoilt"].values()) - run["spoilt"].get("", 0) >= 2000
    assert min(run["spoilt"][kind] for kind in kinds) >= 20


def test_the_judge_stays_small_and_keeps_no_descriptor(run: dict[str, Any]) -> None:
    assert run["peak_bytes"] < MOST_BYTES
    assert run["peak_bytes"] - run["peak_bytes_before"] < MOST_BYTES // 3
    assert run["descriptors_left"] == 0
