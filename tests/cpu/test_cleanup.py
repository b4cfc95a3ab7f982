"""A judge killed or interrupted in the middle: its processes die with it, and what it leaves the next one removes."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from leftovers import processes_of, shared_memory, until

from pkb.judge.crew.leftovers import remove_tree, same_interpreter, stale_folders, sweep

HANGS = """
import time

def solution(tensor):
    while True:
        time.sleep(0.01)
"""
STARTING, RUNNING = "starting 2 x 2 ranks", "call 1 of"


class JudgeProcess:
    """`pkb eval` of a candidate that hangs, with a temporary directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.tmp = folder / "tmp"
        self.tmp.mkdir()
        candidate = folder / "1_allreduce_hangs.py"
        candidate.write_text(HANGS)
        options = ("--platform", "cpu", "--ranks", "2", "--plan", "quick", "--call-limit", "600")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pkb.cli.main", "eval", str(candidate), *options],
            env=os.environ | {"TMPDIR": str(self.tmp)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = self.process.pid

    def wait_for(self, words: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if words in line:
                return
        raise AssertionError(f"the judge ended before it said {words!r}")

    def end(self, number: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=60)
        return self.process.returncode, output + errors


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[JudgeProcess]:
    shm = shared_memory()
    started = JudgeProcess(tmp_path)
    yield started
    started.process.kill()
    started.process.communicate()
    assert until(lambda: not processes_of(started.pid), within_s=10), processes_of(started.pid)
    assert shared_memory() <= shm


@pytest.mark.parametrize(("words", "later_s"), [(STARTING, 0.0), (STARTING, 1.0), (RUNNING, 0.5)])
def test_killed_outright(judge: JudgeProcess, words: str, later_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """No handler runs, so nobody can clean up: the kernel ends the side's processes, the next judge removes its folders."""
    judge.wait_for(words)
    time.sleep(later_s)
    family = psutil.Process(judge.pid).children(recursive=True)
    assert judge.end(signal.SIGKILL)[0] == -signal.SIGKILL
    assert until(lambda: not processes_of(judge.pid), within_s=10), processes_of(judge.pid)
    assert until(lambda: not any(p.is_running() and p.status() != "zombie" for p in family), within_s=10)
    left = list(judge.tmp.glob("pkb-*"))
    assert all(f"-{judge.pid}-" in path.name for path in left), "the sweep finds the owner by this"
    monkeypatch.setattr(tempfile, "tempdir", str(judge.tmp))
    assert sorted(sweep(older_than_s=0)) == sorted(left)
    assert list(judge.tmp.glob("pkb-*")) == []


@pytest.mark.parametrize(("words", "later_s"), [(STARTING, 0.7), (RUNNING, 0.5)])
def test_interrupted(judge: JudgeProcess, words: str, later_s: float) -> None:
    """Ctrl-C: status 130, one line, nothing left, not even a folder."""
    judge.wait_for(words)
    time.sleep(later_s)
    status, text = judge.end(signal.SIGINT)
    assert status == 130
    said = [line for line in text.splitlines() if not line.startswith("[")]  # progress is in brackets
    assert said == ["interrupted: no verdict"]
    assert list(judge.tmp.glob("pkb-*")) == []
    assert processes_of(judge.pid) == []


SLOW_BUILD = '''
from pkb.kit import build_cpp

SOURCE = """
constexpr long slow() { long sum = {unique}; for (long i = 0; i < 1000000000; i++) sum += i; return sum; }
static_assert(slow() > 0);
"""
library = build_cpp(SOURCE, options=["-fconstexpr-ops-limit=100000000000", "-fconstexpr-loop-limit=2147483647"])

def solution(tensor):
    return tensor
'''


def build_processes(folder: Path) -> list[psutil.Process]:
    """The prebuild of this candidate and the compilers below it."""
    found = []
    for process in psutil.process_iter():
        try:
            # Not the judge itself: it names the candidate too, and its end is not in question.
            if "pkb.cli.main" in process.cmdline() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if str(folder) in " ".join(process.cmdline()) or str(folder) in process.cwd():
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_build_dies_with_its_judge(tmp_path: Path, number: signal.Signals) -> None:
    """A compiler at work for nobody, for minutes where it is nvcc's."""
    candidate = tmp_path / "1_allreduce_builds.py"
    candidate.write_text(SLOW_BUILD.replace("{unique}", str(time.time_ns() % 10**6)))
    cache = tmp_path / "cache"
    judge = subprocess.Popen(
        [sys.executable, "-m", "pkb.cli.main", "eval", str(candidate), "--platform", "cpu", "--ranks", "2"],
        env=os.environ | {"PKB_CACHE": str(cache), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert until(lambda: any("cc1plus" in p.name() for p in build_processes(tmp_path)), within_s=60)
        judge.send_signal(number)
        judge.communicate(timeout=60)
        ended = until(lambda: not build_processes(tmp_path), within_s=3)
    finally:
        judge.kill()
        for process in build_processes(tmp_path):
            process.kill()
        judge.communicate()
    assert ended


# -- the sweep --------------------------------------------------------------------------------------------------------


@pytest.fixture
def common_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def dead_pid() -> int:
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def test_the_sweep_takes_what_is_stale_and_nothing_else(common_tmp: Path) -> None:
    dead, alive = dead_pid(), os.getpid()
    stale = [common_tmp / f"pkb-{kind}-{dead}-ab_c1" for kind in ("oracle", "candidate", "mps", "build")]
    kept = [
        common_tmp / f"pkb-oracle-{alive}-abc",
        common_tmp / f"pkb-world-{dead}-abc",
        common_tmp / "pkb-oracle-abc",
        common_tmp / f"other-pkb-oracle-{dead}-abc",
        common_tmp / "precious",
    ]
    for path in (*stale, *kept):
        (path / "inside").mkdir(parents=True)
        (path / "inside" / "file").write_text("x")
    link = common_tmp / f"pkb-candidate-{dead}-link"
    link.symlink_to(common_tmp / "precious")
    (common_tmp / f"pkb-build-{dead}-file").write_text("no folder")
    assert stale_folders() == [], "all of them are too young"
    assert sweep(older_than_s=0) == sorted(stale)
    assert not any(path.exists() for path in stale)
    assert all((path / "inside" / "file").exists() for path in kept)
    assert link.is_symlink()
    assert sweep(older_than_s=0) == []


def test_old_folders_go_by_default(common_tmp: Path) -> None:
    path = common_tmp / f"pkb-oracle-{dead_pid()}-abc"
    path.mkdir()
    os.utime(path, (time.time() - 3600,) * 2)
    assert sweep() == [path]


def test_a_temporary_directory_that_is_gone_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert sweep(older_than_s=0) == []


def test_folders_too_deep_for_a_recursion_are_removed(tmp_path: Path) -> None:
    """A candidate that has no file system of its own makes them in the judge's folder: the judge ended with a traceback."""
    folder = tmp_path / "pkb-candidate-1-x"
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    remove_tree(folder)
    assert not folder.exists()


def test_the_interpreter_stays_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "python"
    own.write_text("")
    own.chmod(0o755)
    (tmp_path / "link").symlink_to(own)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "link"))
    with same_interpreter():
        own.chmod(0)
    assert stat.S_IMODE(own.stat().st_mode) == 0o755
