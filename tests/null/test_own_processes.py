"""What a benchmark starts ends with it: a rank that waits for a peer would keep the GPU that the next run measures."""

import os
import signal
import subprocess
import sys
from typing import Any

import psutil
import pytest

from program_files import ROOT, ends, program

SLEEPS = "import time; time.sleep(60)"
STARTS = f"""
import os, sys, time
import own_processes
started = []
with own_processes.all_ended(started):
    started += [own_processes.start([sys.executable, "-c", {SLEEPS!r}], os.environ) for _ in range(2)]
    print(*(one.pid for one in started), flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_processes_end_with_their_program(number: int) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "benchmarks")}
    command = [sys.executable, "-c", STARTS]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as one:
        assert one.stdout is not None
        started = [psutil.Process(int(pid)) for pid in one.stdout.readline().split()]
        one.send_signal(number)
    assert len(started) == 2
    assert all(map(ends, started))


def test_processes_end_with_the_block() -> None:
    own = program("benchmarks/own_processes.py")
    started: list[Any] = []

    def fail() -> None:
        with own.all_ended(started):
            started.append(own.start([sys.executable, "-c", SLEEPS], os.environ))
            raise ValueError("a fault of ours")

    with pytest.raises(ValueError, match="ours"):
        fail()
    assert started[0].poll() == -signal.SIGKILL
