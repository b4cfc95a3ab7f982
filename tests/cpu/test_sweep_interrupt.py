"""Sweeps that are interrupted: in the middle, and while they end."""

import re
import signal
import time
from pathlib import Path

import pytest
from leftovers import until
from sweeping import REAL, Silent, pkb, running_below_us, store_run, verdicts, write_candidates

from pkb.cluster.orders import Order
from pkb.cluster.settings import SweepSettings
from pkb.cluster.sweep import Sweep
from pkb.cluster.tally import tally
from pkb.judge.service.messages import JudgeEvent
from pkb.store import Store


def test_interrupt_leaves_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    before = {int(line.split()[0]) for line in running_below_us()}
    write_candidates(tmp_path / "c", cheap=2, real_at=[0, 2])
    (tmp_path / "c" / "02" / "1_allreduce_torch.py").write_text(f"import time\n\ntime.sleep(10)\n{REAL}")
    common = ("--store", str(tmp_path / "store"))
    process = pkb("run", "--candidates", str(tmp_path / "c"), "--plan", "quick", "--ranks", "2", "--platform", "cpu",
                  *common)  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "1/4" in line:
            break
    time.sleep(1.5)  # inside a later one, or between two: the slow one is not done yet
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert output == ""
    (command,) = re.findall(r"go on with: pkb (run --resume \S+ --store \S+)", errors)
    assert until(lambda: not running_below_us(before), within_s=10), running_below_us(before)
    with Store(tmp_path / "store") as store:
        run = store.run("latest")
        stopped = tally(store, run)
        assert (stopped.state, stopped.elsewhere) == ("interrupted", 0)
        assert 1 <= sum(stopped.verdicts.values()) < 4
        assert all(task.attempts <= 1 for task in store.tasks(run.id))
        again = pkb(*command.split())
        output, errors = again.communicate(timeout=120)
        assert again.returncode == 0, errors
        assert all(len(each) == 1 for each in verdicts(store, run).values())
        assert tally(store, run).state == "complete"


class InterruptedInClose:
    """Ctrl-C comes while it closes, which takes a second with real judges."""

    seats, builders, concurrency = 1, 0, 1
    closed = False

    def __init__(self, *, answers: str) -> None:
        self.answers = answers
        self.told: list[JudgeEvent] = []

    def start(self, order: Order) -> None:
        if self.answers == "none":
            raise RuntimeError("a sweep that ends with tasks in hand")
        self.told.append(JudgeEvent(order.id, "refused", "the platform is not there"))

    def events(self, timeout_s: float) -> list[JudgeEvent]:
        told, self.told = self.told, []
        return told

    def close(self) -> None:
        signal.raise_signal(signal.SIGINT)
        self.closed = True


@pytest.mark.parametrize(("answers", "state"), [("all", "complete"), ("none", "interrupted")])
def test_interrupt_while_it_ends_is_taken_behind_the_end(tmp_path: Path, answers: str, state: str) -> None:
    write_candidates(tmp_path / "c", cheap=2)
    executor = InterruptedInClose(answers=answers)
    with Store(tmp_path / "store") as store:
        run = store_run(store, tmp_path / "c")
        settings = SweepSettings.of(store.run(run.id).config)
        with pytest.raises(KeyboardInterrupt):
            Sweep(store, run, executor=executor, settings=settings, watcher=Silent()).work()
        assert executor.closed
        assert (tally(store, run).state, tally(store, run).elsewhere) == (state, 0)
