"""Stopping a tree of processes from outside: all of it, however it is built and whoever wakes whom; then it goes on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from pkb.judge.crew.stopping import Stopped, descendants, stopped

FAMILY = """
import os, threading, time
def spin():
    while True: pass
for _ in range(2):
    if os.fork() == 0:
        os.fork()
        threading.Thread(target=spin, daemon=True).start()
        spin()
print("ready", flush=True)
time.sleep(1000)
"""
WAKERS = """
import os, signal, time
root = os.getpid()
for _ in range(3):
    if os.fork() == 0:
        while True:
            for pid in range(root, root + 12):
                try: os.kill(pid, signal.SIGCONT)
                except OSError: pass
print("ready", flush=True)
time.sleep(1000)
"""
FORKING = """
import os, time
print("ready", flush=True)
while True:
    if os.fork() == 0:
        time.sleep(0.05)
        os._exit(0)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError: pass
    time.sleep(0.001)
"""


@contextmanager
def tree_of(script: str) -> Iterator[int]:
    """Below a shell, as ranks are below a warden; the shell itself is not stopped."""
    command = ["sh", "-c", f"'{sys.executable}' -c '{script}' & wait"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10)


def family(root: int, least: int) -> list[int]:
    """Once so many are there."""
    give_up = time.monotonic() + 30
    while len(pids := descendants(root)) < least:
        assert time.monotonic() < give_up
        time.sleep(0.01)
    return pids


def cpu_seconds(pids: list[int]) -> float:
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


@pytest.mark.parametrize("script", [FAMILY, WAKERS], ids=["family", "wakers"])
def test_nothing_of_the_tree_runs_until_it_goes_on(script: str) -> None:
    with tree_of(script) as root:
        pids = family(root, 4)
        with stopped(root) as tree:
            assert tree.restless == ()
            before = cpu_seconds(pids)
            time.sleep(0.2)
            assert cpu_seconds(pids) == before
            assert tree.moved() == []
            assert {psutil.Process(pid).status() for pid in pids} == {psutil.STATUS_STOPPED}
        give_up = time.monotonic() + 30
        while cpu_seconds(pids) == before:
            assert time.monotonic() < give_up
            time.sleep(0.05)


def test_a_tree_that_keeps_forking_is_caught() -> None:
    with tree_of(FORKING) as root, stopped(root) as tree:
        assert tree.restless == ()
        pids = descendants(root)
        time.sleep(0.1)
        assert descendants(root) == pids
        assert tree.moved() == []


def test_who_was_woken_is_noticed() -> None:
    with tree_of(FAMILY) as root, stopped(root if family(root, 5) else 0) as tree:
        spinning = descendants(root)[-1]
        os.kill(spinning, signal.SIGCONT)
        give_up = time.monotonic() + 10
        while not (moved := tree.moved()):
            assert time.monotonic() < give_up
        assert moved == [spinning]
        os.kill(spinning, signal.SIGSTOP)
        time.sleep(0.05)
        assert tree.moved() == [spinning], "it has had time on a core, though it is still again"


def test_an_error_inside_lets_the_tree_go_on() -> None:
    with tree_of(FAMILY) as root:
        with pytest.raises(KeyError), stopped(root):
            raise KeyError
        assert psutil.STATUS_STOPPED not in {psutil.Process(pid).status() for pid in descendants(root)}


def test_a_tree_that_is_gone_is_still() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    tree = Stopped(process.pid)
    tree.stop()
    assert (tree.restless, tree.moved()) == ((), [])
