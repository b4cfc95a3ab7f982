"""Our kernels are right and free of races when a CUDA graph replays them. One that counts on the host is neither."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from kernels import BY_NAME
from replays import HOST, NOT_CAPTURED

from pkb.kit.emulated.gxx import find_gxx

HERE = Path(__file__).parent
QUICK = ("01 two-shot", "81")
pytestmark = pytest.mark.skipif(isinstance(find_gxx(), str), reason="no C++ compiler that can build the emulator")


@cache
def _replays(*names: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(HERE / "replays.py"), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert not [one for one in found if one["cut"] or one["trouble"] or one["events"] < 1000]
    return found


def test_kernels_of_ours_are_replayed_right_and_without_a_race() -> None:
    for one in _replays(*QUICK, HOST)[: len(QUICK)]:
        assert (one["wrong"], one["kinds"]) == ([], []), one


def test_an_epoch_on_the_host_is_a_race_in_replays_and_none_in_calls() -> None:
    replays, calls = _replays(*QUICK, HOST)[len(QUICK) :]
    assert (replays["graph"], calls["graph"]) == (True, False)
    assert replays["kinds"]
    assert (calls["wrong"], calls["kinds"]) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in NOT_CAPTURED])
def test_all_kernels_are_replayed_right_and_without_a_race(name: str) -> None:
    (one,) = _replays(name)
    assert (one["wrong"], one["kinds"]) == ([], [])
