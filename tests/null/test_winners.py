"""The best of several samples is measured once more, and the later verdict counts."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pkb.analysis.results import read_results
from pkb.cluster.orders import Order
from pkb.cluster.settings import SweepSettings
from pkb.cluster.sweep import Sweep
from pkb.cluster.tally import tally
from pkb.cluster.winners import winners
from pkb.judge.service.messages import JudgeEvent, JudgeOrder
from pkb.store import CandidateFile, Run, Store, Task, TaskSpec
from pkb.store.exporting import write_jsonl
from pkb.types.case import Case
from pkb.types.document import VerdictDocument

CASE = Case("01_allreduce", "virtual", 4, "paper", "bf16", "standard")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        yield opened


class Nobody:
    def stage(self, task: Task, text: str) -> None: ...
    def judged(self, task: Task, verdict: str, detail: str) -> None: ...
    def failed(self, task: Task, why: str, *, again: bool) -> None: ...


def verdict(word: str, speedup: float | None = None, decision: str = "faster") -> VerdictDocument:
    times = None
    if speedup is not None:
        times = {"speedup": speedup, "speedup_low": speedup * 0.98, "speedup_high": speedup * 1.02, "reference_us": 10.0,
                 "candidate_us": 10 / speedup, "decision": decision}  # fmt: skip
    return VerdictDocument({
        "schema": 2, "verdict": word, "stage": "done", "detail": "", "problem": {"id": 1, "name": "allreduce"},
        "candidate": {"file": "x.py"}, "platform": "virtual", "hardware": "a GPU", "ranks": 4, "size": "paper", "dtype": "bf16",
        "plan": "standard", "timing": times,
    })  # fmt: skip


@dataclass
class Executor:
    """Judges by a table of answers for each file, one after another."""

    answers: dict[bytes, list[VerdictDocument | str]]
    seats: int = 1
    builders: int = 0
    concurrency: int = 1
    orders: list[JudgeOrder] = field(default_factory=list)
    waiting: list[JudgeEvent] = field(default_factory=list)

    def start(self, order: Order) -> None:
        assert isinstance(order, JudgeOrder)
        self.orders.append(order)
        said = self.answers[order.source].pop(0)
        event: Any = (
            JudgeEvent(order.id, "lost", said) if isinstance(said, str) else JudgeEvent(order.id, "done", document=said)
        )
        self.waiting.append(event)

    def events(self, timeout_s: float) -> list[JudgeEvent]:
        found, self.waiting = self.waiting, []
        return found

    def close(self) -> None: ...


def new_run(store: Store, *sources: bytes, collection: str = "model") -> Run:
    tasks = [TaskSpec(collection=collection, case=CASE, backend="cuda", sample=n) for n in range(len(sources))]
    files = {
        task.key: CandidateFile(source=source, filename="1_allreduce_cuda.py", origin="here")
        for task, source in zip(tasks, sources, strict=True)
    }
    return store.create_run("sweep", tasks=tasks, candidates=files)


def work(store: Store, run: Run, executor: Executor, **more: Any) -> None:
    Sweep(store, run, executor=executor, settings=SweepSettings(), watcher=Nobody(), **more).work()


def test_the_fastest_correct_sample_is_measured_once_more(tmp_path: Path, store: Store) -> None:
    run = new_run(store, b"a", b"b", b"c")
    executor = Executor(
        {
            b"a": [verdict("correct", 1.2)],
            b"b": [verdict("correct", 1.9), verdict("correct", 1.3)],
            b"c": [verdict("wrong")],
        }
    )
    work(store, run, executor)
    assert [order.source for order in executor.orders] == [b"a", b"b", b"c", b"b"]
    assert tally(store, run).verdicts == {"correct": 2, "wrong": 1}, "a verdict a task, however often it was measured"
    write_jsonl(store, [run], out=str(tmp_path / "run.jsonl"))
    found = read_results([tmp_path / "run.jsonl"])
    assert {sample.index: sample.speed.value for sample in found.samples if sample.speed} == {0: 1.2, 1: 1.3}
    work(store, run, executor)
    assert len(executor.orders) == 4, "once"


def test_who_is_the_fastest_after_that_is_measured_once_more_too(store: Store) -> None:
    """What is reported as the best of k was chosen by no measurement of its own."""
    run = new_run(store, b"a", b"b", b"c")
    executor = Executor(
        {
            b"a": [verdict("correct", 1.2), verdict("correct", 1.15)],
            b"b": [verdict("correct", 1.9), verdict("correct", 1.1)],
            b"c": [verdict("correct", 1.05)],
        }
    )
    work(store, run, executor)
    assert [order.source for order in executor.orders] == [b"a", b"b", b"c", b"b", b"a"]
    assert winners(store, run) == []


def test_one_that_cannot_be_measured_again_is_not_tried_for_ever(store: Store) -> None:
    run = new_run(store, b"a", b"b")
    executor = Executor({b"a": [verdict("correct", 1.2)], b"b": [verdict("correct", 1.9), "it died"]})
    work(store, run, executor)
    assert [order.source for order in executor.orders] == [b"a", b"b", b"b"]


@pytest.mark.parametrize("second", ["it died", verdict("harness_error")])
def test_one_that_cannot_be_measured_again_keeps_its_verdict(store: Store, second: VerdictDocument | str) -> None:
    run = new_run(store, b"a", b"b")
    work(store, run, Executor({b"a": [verdict("correct", 1.2), second], b"b": [verdict("wrong")]}))
    result = tally(store, run)
    assert (result.verdicts, result.failed, result.state) == ({"correct": 1, "wrong": 1}, (), "complete")


def test_the_later_verdict_counts_even_if_it_is_worse(store: Store) -> None:
    run = new_run(store, b"a", b"b")
    work(store, run, Executor({b"a": [verdict("correct", 1.2), verdict("race")], b"b": [verdict("wrong")]}))
    assert tally(store, run).verdicts == {"race": 1, "wrong": 1}


@pytest.mark.parametrize(
    "answers",
    [
        {b"a": [verdict("correct")], b"b": [verdict("correct")]},
        {b"a": [verdict("wrong")], b"b": [verdict("race")]},
        {b"a": [verdict("correct", 3.0, "unproven")], b"b": [verdict("wrong")]},
    ],
    ids=["not timed", "none correct", "unproven"],
)
def test_nobody_to_measure_again(store: Store, answers: dict[bytes, list[VerdictDocument | str]]) -> None:
    run = new_run(store, *answers)
    executor = Executor(answers)
    work(store, run, executor)
    assert len(executor.orders) == 2


def test_a_single_sample_is_no_winner(store: Store) -> None:
    run = new_run(store, b"a")
    work(store, run, Executor({b"a": [verdict("correct", 1.2)]}))
    assert winners(store, run) == []


def test_not_before_all_are_judged(store: Store) -> None:
    run = new_run(store, b"a", b"b")
    executor = Executor({b"a": [verdict("correct", 1.2), verdict("correct", 1.1)], b"b": [verdict("wrong")]})
    work(store, run, executor, limit=1)
    assert len(executor.orders) == 1
    assert winners(store, run) == []
    work(store, run, executor)
    assert [order.source for order in executor.orders] == [b"a", b"b", b"a"]
