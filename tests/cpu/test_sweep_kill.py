"""A sweep is killed outright, again and again: nothing it started survives it, and in the end each task has one verdict."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from leftovers import until
from sweeping import adopt_orphans, pkb, running_below_us, verdicts, write_candidates

from pkb.cluster.tally import tally
from pkb.platforms.device_lock import hold
from pkb.store import Store
from pkb.store.check import check
from pkb.types.errors import UserError


def start(folder: Path, root: Path) -> subprocess.Popen[str]:
    """As a user would: a new sweep if there is no run yet, else the last one resumed."""
    with Store(root) as store:
        known = bool(store.runs())
    if known:
        return pkb("run", "--resume", "latest", "--store", str(root))
    return pkb("run", "--candidates", str(folder), "--plan", "quick", "--ranks", "2", "--platform", "cpu",
               "--store", str(root))  # fmt: skip


def wait_for_verdicts(process: subprocess.Popen[str], lines: int) -> None:
    """Reads until so many verdicts were reported, or the sweep has ended."""
    assert process.stderr is not None
    for line in process.stderr:
        if " s] " in line:
            lines -= 1
        if lines <= 0:
            return


def kill_and_resume(tmp_path: Path, *, kills: int, seed: int) -> None:
    """Only kills of a sweep at work count: one that was done before its moment came is checked, and a new one begins."""
    dice = random.Random(seed)
    expected = write_candidates(tmp_path / "c", cheap=12, real_at=[0, 6])
    before = {int(line.split()[0]) for line in running_below_us()}
    roots = [tmp_path / "store-0"]
    done = 0
    with adopt_orphans():
        for _ in range(3 * kills):
            process = start(tmp_path / "c", roots[-1])
            if dice.random() < 0.4:
                time.sleep(dice.uniform(0.1, 3.0))  # while it starts, plans or claims
            else:
                wait_for_verdicts(process, dice.randint(0, 2))
                time.sleep(dice.uniform(0.0, 2.5))
            ended = process.poll()
            process.kill()
            _, errors = process.communicate(timeout=10)
            assert until(lambda: not running_below_us(before), within_s=15), running_below_us(before)
            if ended is not None:
                assert ended == 0, errors
                roots.append(tmp_path / f"store-{len(roots)}")
            done += ended is None
            if done == kills:
                break
    assert done == kills, "too few kills hit a sweep at work to prove anything"
    last = start(tmp_path / "c", roots[-1])
    _, errors = last.communicate(timeout=180)
    assert last.returncode == 0, errors
    for root in roots:
        with Store(root) as store:
            run = store.run("latest")
            assert len(store.runs()) == 1
            assert verdicts(store, run) == {name: [verdict] for name, verdict in expected.items()}
            result = tally(store, run)
            assert (result.tasks, result.failed, result.waiting, result.state) == (len(expected), (), 0, "complete")
            assert check(store).clean


def test_killed_at_random_moments(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, kills=3, seed=int.from_bytes(os.urandom(2), "big"))


@pytest.mark.slow
def test_killed_twenty_times(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, kills=20, seed=int.from_bytes(os.urandom(2), "big"))


# -- one evaluation at a time on a device -------------------------------------------------------------------------------


def test_a_device_is_held_by_one_and_freed_by_death(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKB_LOCK_DIR", str(tmp_path / "locks"))
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        with hold(["GPU-a", "GPU-b"]):
            os.write(told, b"x")
            time.sleep(60)
        os._exit(0)
    assert os.read(ready, 1) == b"x"
    heard: list[str] = []
    with hold(["GPU-c"], wait_s=0):
        pass
    with pytest.raises(UserError, match=f"process {child}"), hold(["GPU-b"], wait_s=0.3, say=heard.append):
        pass
    assert heard == [f"waiting for GPU-b, in use by process {child}"]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with hold(["GPU-b", "GPU-a"], wait_s=5):
        pass
