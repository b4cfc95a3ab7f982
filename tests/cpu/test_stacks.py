"""Stacks of processes that answer late, in pieces, or not at all."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pkb.judge.crew import stacks
from pkb.judge.crew.stacks import Stacks

STUCK = """
def stuck():
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
stuck()
"""
AT_ONCE = "faulthandler.register(signal.SIGUSR1, file=fd, all_threads=True, chain=False)"
IN_PIECES = """
def answer(*_):
    os.write(fd, b"Current thread 0x1 (most recent call first):\\n")
    time.sleep(1)
    os.write(fd, b'  File "kernel.py", line 3 in stuck\\n  File "<frozen runpy>", line 198 in _run_module_as_main\\n')
signal.signal(signal.SIGUSR1, answer)
"""


@contextmanager
def stuck_rank(tmp_path: Path, how: str) -> Iterator[tuple[Stacks, int]]:
    asked = Stacks(1)
    fd = asked.files[0]
    head = f"import faulthandler, os, signal, sys, time\nfd = {fd}\n"
    (tmp_path / "kernel.py").write_text(head + how + STUCK)
    with subprocess.Popen(
        [sys.executable, "-m", "kernel"], cwd=tmp_path, pass_fds=[fd], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield asked, process.pid
        finally:
            process.kill()
            asked.close()


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)


def test_a_rank_that_gets_no_core_for_a_second_is_waited_for(tmp_path: Path) -> None:
    with stuck_rank(tmp_path, AT_ONCE) as (asked, pid):
        stop(pid)
        later = threading.Timer(1, os.kill, [pid, signal.SIGCONT])
        later.start()
        asked.ask({0: pid})
        later.join()
        assert any("kernel.py" in frame and "in stuck" in frame for frame in asked.frames(0)), asked.frames(0)


def test_half_a_dump_is_no_answer(tmp_path: Path) -> None:
    with stuck_rank(tmp_path, IN_PIECES) as (asked, pid):
        asked.ask({0: pid})
        assert asked.frames(0) == ("kernel.py:3 in stuck",)


def test_an_old_dump_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stuck_rank(tmp_path, AT_ONCE) as (asked, pid):
        asked.ask({0: pid})
        assert asked.frames(0)
        stop(pid)
        monkeypatch.setattr(stacks, "ANSWER_S", 0.5)
        asked.ask({0: pid})
        assert asked.frames(0) == ()


@pytest.mark.timeout(10)
def test_ends_of_lines_by_the_ten_thousand_do_not_keep_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "ANSWER_S", 0.1)
    asked = Stacks(8)
    try:
        monkeypatch.setattr(
            os, "kill", lambda pid, _: os.write(asked.files[pid], b"\n" * (stacks.MOST_BYTES - 1) + b"x")
        )
        asked.ask({rank: rank for rank in range(8)})
        assert asked.frames(7) == ()
    finally:
        asked.close()
