"""Verdicts beside each other: what fits into memory is begun, what company may have caused is judged again, nothing is lost."""

import contextlib
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from verdict_examples import example

from pkb.problems import get
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Failure, FailureKind, Verdict
from program_files import program

ROOM = 134
NEEDS = {"tiny": 5, "paper": 20, "real": 70, "huge": 200}


@pytest.fixture
def lanes() -> Any:
    return program("benchmarks/lanes.py")


class Scripted:
    """A lane whose judge says what the test has written down, and is gone then."""

    def __init__(self, work: Any = None, said: tuple[Any, ...] = (), *, company: bool = False) -> None:
        self.work, self.left, self.company, self.since = work, work.sizes if work else (), company, 0.0
        self.said, self.pipe = list(said), self

    def recv(self) -> Any:
        if not self.said:
            raise EOFError
        return self.said.pop(0)

    def begin(self, work: Any, stop_at: float, *, company: bool) -> None:
        self.work, self.left, self.company = work, work.sizes, company

    def kill(self) -> None:
        pass


def job(number: int = 1, ranks: int = 8) -> Job:
    return Job(Path(f"{number}.py"), Case(get(number).stem, "virtual", ranks, "tiny", "bf16", "standard"))


def planned(lanes: Any, *files: tuple[str, ...]) -> list[Any]:
    works = [lanes.Work(job(number), sizes) for number, sizes in enumerate(files, start=1)]
    return list(lanes.planned(works, ROOM, lambda _, size: NEEDS[size]))


def test_sizes_of_a_file_share_a_start_unless_one_of_them_takes_most_of_the_room(lanes: Any) -> None:
    found = planned(lanes, ("tiny", "paper"), ("tiny", "real"), ("paper", "huge"))
    starts = [(work.job.case.problem[:2], work.sizes, work.bytes, work.alone) for work in found]
    assert starts == [
        ("02", ("real",), 70, False), ("01", ("tiny", "paper"), 20, False), ("03", ("paper",), 20, False),
        ("02", ("tiny",), 5, False), ("03", ("huge",), ROOM, True),
    ]  # fmt: skip


def test_lanes_never_hold_more_than_the_room(lanes: Any) -> None:
    waiting = planned(lanes, ("real",), ("real",), ("paper",), ("paper",), ("paper",), ("huge",))
    there = [Scripted() for _ in range(4)]
    begun = []
    while waiting:
        lanes._hand_out(waiting, there, ROOM, stop_at=float("inf"))
        at_work = [lane.work for lane in there if lane.work is not None]
        assert at_work
        assert sum(work.bytes for work in at_work) <= ROOM
        assert len(at_work) == 1 or not any(work.alone for work in at_work)
        begun.append([(work.sizes[0], lane.company) for lane in there if (work := lane.work)])
        for lane in there:
            lane.work = None
    assert begun == [
        [("real", True), ("paper", True), ("paper", True), ("paper", True)], [("real", False)], [("huge", False)],
    ]  # fmt: skip


def test_nothing_is_begun_after_the_end(lanes: Any) -> None:
    waiting, lane = planned(lanes, ("tiny",)), Scripted()
    lanes._hand_out(waiting, [lane], ROOM, stop_at=0.0)
    assert lane.work is None
    assert len(waiting) == 1


@pytest.fixture
def judging(lanes: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Judges whose sizes take what `takes` says, on a clock of their own; the starts that were made, and what was said."""
    clock, takes, starts = [0.0], dict.fromkeys(NEEDS, 10.0), list[tuple[str, ...]]()

    def evaluate_sizes(_: Job, sizes: tuple[str, ...]) -> Any:
        starts.append(sizes)
        for size in sizes:
            clock[0] += takes[size]
            yield example(Verdict.CORRECT, size=size)

    monkeypatch.setattr(lanes, "evaluate_sizes", evaluate_sizes)
    monkeypatch.setattr(lanes, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return SimpleNamespace(clock=clock, takes=takes, starts=starts)


EXPECTED = {"tiny": 10.0, "paper": 10.0, "real": 60.0}


@pytest.mark.parametrize(
    ("stop_at", "paper_takes", "starts", "judged"),
    [
        (100, 10, [("paper", "real", "tiny")], ["paper", "real", "tiny"]),
        (50, 10, [("paper", "tiny")], ["paper", "tiny"]),
        (81, 40, [("paper", "real", "tiny"), ("tiny",)], ["paper", "tiny"]),
        (81, 80, [("paper", "real", "tiny")], ["paper"]),
        (5, 10, [], []),
    ],
)
def test_a_size_is_begun_if_it_will_end_in_time(
    lanes: Any, judging: Any, stop_at: float, paper_takes: float, starts: Any, judged: Any
) -> None:
    judging.takes |= {"paper": paper_takes, "real": 60.0}
    work = lanes.Work(job(), ("paper", "real", "tiny"), expected_s=EXPECTED)
    assert [result.size for result in lanes.judge_sizes(work, stop_at)] == judged
    assert judging.starts == starts


def test_what_would_not_end_leaves_its_lane_to_the_next(lanes: Any, judging: Any) -> None:
    long, unknown = (lanes.Work(job(n), ("real",), expected_s=took) for n, took in ((1, EXPECTED), (2, {})))
    waiting, lane = [long, unknown], Scripted()
    lanes._hand_out(waiting, [lane], ROOM, stop_at=50.0)
    assert lane.work == unknown, "what nothing is known of has all the time that is left"
    assert waiting == [long]


def heard(lanes: Any, lane: Scripted) -> tuple[list[Any], list[Any]]:
    waiting: list[Any] = []
    found = []
    while lane.work is not None:
        found += lanes._hear(lane, waiting, lanes.Tries())
    return found, waiting


def test_what_company_may_have_caused_is_judged_again_alone(lanes: Any) -> None:
    (work,) = planned(lanes, ("tiny", "paper"))
    no_memory = Failure(FailureKind.EXCEPTION, "CUDA out of memory", name="torch.OutOfMemoryError")
    doubts: list[Any] = [
        example(Verdict.DEADLOCK), example(Verdict.CRASH), example(Verdict.HARNESS_ERROR),
        example(Verdict.RUNTIME_ERROR, failure=no_memory),
    ]  # fmt: skip
    for doubt in doubts:
        said = (example(Verdict.CORRECT, size="tiny"), example(doubt.verdict, size="paper", failure=doubt.failure), "")
        found, waiting = heard(lanes, Scripted(work, said, company=True))
        assert [one.size for one in found] == ["tiny"]
        assert [(one.sizes, one.alone) for one in waiting] == [(("paper",), True)]
        found, waiting = heard(lanes, Scripted(work, said))
        assert [one.size for one in found] == ["tiny", "paper"], "alone it is a verdict"
        assert not waiting


def test_a_machine_that_fails_is_given_up_before_all_have_tried_in_company(lanes: Any) -> None:
    """Each failure there would be tried once more, alone, and first of all the others would fail as well."""
    tries, waiting = lanes.Tries(), list[Any]()

    def all_fail() -> None:
        for work in planned(lanes, *[("tiny",)] * 20):
            said: Any = (example(Verdict.HARNESS_ERROR, size="tiny"), "") if len(waiting) % 2 else ("Traceback ...",)
            lane = Scripted(work, said, company=True)
            while lane.work is not None:
                list(lanes._hear(lane, waiting, tries))

    with pytest.raises(SystemExit):
        all_fail()
    assert len(waiting) == 9
    assert all(work.alone for work in waiting)


@pytest.mark.parametrize("verdict", [Verdict.WRONG, Verdict.RACE, Verdict.REUSED_OUTPUT, Verdict.COMPILE_ERROR])
def test_company_excuses_nothing_else(lanes: Any, verdict: Verdict) -> None:
    (work,) = planned(lanes, ("tiny",))
    found, waiting = heard(lanes, Scripted(work, (example(verdict, size="tiny"), ""), company=True))
    assert [one.result.verdict for one in found] == [verdict]
    assert lanes.BESIDE in found[0].result.checks
    assert not waiting


@pytest.mark.parametrize("last", [(), ("Traceback ...",)])
def test_a_judge_that_is_gone_is_asked_once_more_and_then_told_of(lanes: Any, last: tuple[str, ...]) -> None:
    (work,) = planned(lanes, ("tiny", "paper"))
    said = (example(Verdict.CORRECT, size="tiny"), *last)
    found, waiting = heard(lanes, Scripted(work, said, company=True))
    assert [one.size for one in found] == ["tiny"]
    assert [(one.sizes, one.alone) for one in waiting] == [(("paper",), True)]
    found, waiting = heard(lanes, Scripted(work, said))
    assert [(one.size, isinstance(one.result, str)) for one in found] == [("tiny", False), ("paper", True)]
    assert not waiting


def test_a_lane_that_dies_while_another_is_heard_loses_no_work(lanes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Dying(Scripted):
        """The first two share the device: while the first is heard, the second dies."""

        def __init__(self, folder: str) -> None:
            super().__init__()
            self.folder, self.alive = folder, True
            self.process = SimpleNamespace(is_alive=lambda: self.alive)
            made.append(self)

        def begin(self, work: Any, stop_at: float, *, company: bool) -> None:
            super().begin(work, stop_at, company=company)
            self.since = time.monotonic()
            if self is not made[1]:
                self.said = [example(Verdict.CORRECT, size="tiny"), ""]

        def recv(self) -> Any:
            made[1].alive = False
            return super().recv()

        def kill(self) -> None:
            self.alive = False

        def end(self) -> None:
            pass

    works = [lanes.Work(job(number), ("tiny",), 1) for number in (1, 2)]
    monkeypatch.setattr(lanes, "_Lane", Dying)
    monkeypatch.setattr(lanes, "hold", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(lanes, "planned", lambda works, room: list(works))
    monkeypatch.setattr(lanes, "wait", lambda pipes, timeout: pipes[:1])
    found = list(lanes.judge_beside(works, lanes=2, platform="cpu", stop_at=time.monotonic() + 60))
    assert [one.work.job.case.problem[:2] for one in found] == ["01", "02"]


def test_memory_is_that_of_the_measured_references(lanes: Any) -> None:
    """On a GPU of 150 GB: reduce, whose needs docs/platforms.md has, is alone with eight ranks; small calls share it."""
    gpu = 150e9 * lanes.ROOM
    assert lanes.bytes_needed(job(4), "real") > 114e9 * lanes.ROOM
    assert all(4 * lanes.bytes_needed(job(number), "paper") < gpu for number in (1, 4, 13))
    assert 4 * lanes.bytes_needed(job(1), "real") < gpu
    assert lanes.bytes_needed(job(1, ranks=2), "real") < lanes.bytes_needed(job(1), "real")
