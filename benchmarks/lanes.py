"""Judges several candidates at a time on one device, without times and as far as its memory allows.

Most of an evaluation is starting ranks, which hardly uses a GPU. The device is held for all lanes. Each lane is a process that
judges one file after another, so that torch is imported once per lane, and queues for the device in its own folder.

Evaluations that run side by side delay each other's ranks, which does not make a correct kernel wrong. A verdict that this may
have caused (a deadlock, a crash, no memory left, a judge that died) does not count: the candidate is judged again, alone.
"""

import contextlib
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from kernel_records import Tries, read_rows

from pkb.judge.budgets import STAGE_BYTES
from pkb.judge.session import evaluate_sizes
from pkb.judge.settling import memory_estimate
from pkb.platforms.device_lock import devices_of, hold
from pkb.platforms.registry import create
from pkb.problems import get
from pkb.problems.base import DTYPES
from pkb.types.job import Job
from pkb.types.processes import die_with_parent
from pkb.types.verdict import Evaluation, Verdict

PEAKS = Path(__file__).parents[1] / "docs" / "records" / "references" / "references.jsonl"
CONTEXT_BYTES = 640 << 20
"""Of the GPU, for each process of a rank before it holds any data, with NCCL's buffers: docs/platforms.md."""
ROOM = 0.9
"""Of the memory, for all that are judged at a time."""
SILENCE_S = 900.0
"""What one size may take. The judge bounds every stage itself, so only one that hangs comes near it."""
BESIDE = "judged beside others on its device, where nothing was timed"


class Work(NamedTuple):
    """A file with one number of ranks: its sizes share one start."""

    job: Job
    sizes: tuple[str, ...]
    bytes: int = 0
    """Of the device, at the size that needs most."""
    alone: bool = False
    expected_s: Mapping[str, float] = {}
    """By size, where records hold any."""

    def in_time(self, left_s: float) -> tuple[str, ...]:
        """The sizes that will end in so many seconds, one after another; one of which nothing is known may take them all."""
        found = []
        for size in self.sizes:
            if left_s > (takes := self.expected_s.get(size, 0.0)):
                found.append(size)
                left_s -= takes
        return tuple(found)


class Judged(NamedTuple):
    work: Work
    size: str
    result: Evaluation | str
    """Or what became of a judge that has said nothing, twice where the first had company."""
    seconds: float


# -- memory --------------------------------------------------------------------------------------------------------------


@cache
def peaks() -> dict[tuple[int, str], tuple[int, int]]:
    """By problem and size: ranks, and what a call of the reference took at most on all of them, as measured."""
    rows = read_rows(PEAKS)
    return {
        (row["id"], row["size"]): (row["ranks"], row["all_ranks_peak_bytes"])
        for row in rows
        if row["all_ranks_peak_bytes"]
    }


def bytes_needed(job: Job, size: str) -> int:
    """Device memory that both sides need: the ground truth of a call in float64, beside two calls that are held, or beside as
    many small calls as the race stage makes. An estimate, on the safe side where a reference was measured."""
    problem, case = get(job.case.problem), job.at_size(size).case
    arguments = case.ranks * problem.argument_bytes(size, case.ranks, case.dtype)
    peak = 3 * arguments
    if (measured := peaks().get((problem.id, size))) is not None:
        ranks, there = measured
        peak = there * arguments // max(1, ranks * problem.argument_bytes(size, ranks, case.dtype))
    wide = 8 // DTYPES[case.dtype].itemsize if problem.truth == "float64" else 1
    small = min(int(STAGE_BYTES), job.plan.race_calls * (1 + wide) * peak)
    contexts = 2 * case.ranks * CONTEXT_BYTES if create(case.platform).device == "cuda" else 0
    return contexts + max((2 + wide) * peak, small, memory_estimate(case, problem))


def planned(works: Iterable[Work], room: int, need: Callable[[Job, str], int] = bytes_needed) -> list[Work]:
    """The order of work: what needs most memory first, so that small cases fill the rest, and last what must run alone. A size
    that takes more than half of the memory has its own start, so that the other sizes of its file need not wait."""
    found = []
    for work in works:
        needs = {size: need(work.job, size) for size in work.sizes}
        for large in (False, True):
            if sizes := tuple(size for size in work.sizes if (needs[size] > room // 2) == large):
                most = max(needs[size] for size in sizes)
                found.append(work._replace(sizes=sizes, bytes=min(most, room), alone=most >= room))
    return sorted(found, key=lambda work: (work.alone, -work.bytes))


def judge_sizes(work: Work, stop_at: float) -> Iterator[Evaluation]:
    """Judges the sizes that will end in time, since an interrupted one is lost; a size that would not end is skipped for those
    after it."""
    while sizes := work.in_time(stop_at - time.monotonic()):
        with contextlib.closing(evaluate_sizes(work.job, sizes)) as verdicts:
            for result in verdicts:
                yield result
                work = work._replace(sizes=tuple(size for size in work.sizes if size != result.size))
                following = sizes[sizes.index(result.size) + 1 :][:1]
                if following and not work._replace(sizes=following).in_time(stop_at - time.monotonic()):
                    break
            else:  # none is asked for twice, whatever came of it
                work = work._replace(sizes=tuple(size for size in work.sizes if size not in sizes))


# -- lanes ---------------------------------------------------------------------------------------------------------------


def _serve(pipe: Connection, lock_folder: str, parent: int) -> None:
    """One lane: works come, a verdict for each size goes, and then a word or nothing."""
    die_with_parent(parent)
    os.environ["PKB_LOCK_DIR"] = lock_folder
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            work, stop_at = pipe.recv()
            try:
                for result in judge_sizes(work, stop_at):
                    pipe.send(result)
                pipe.send("")
            except Exception:  # the process's boundary: told to whoever counts
                pipe.send(traceback.format_exc()[-1500:])


@dataclass
class _Lane:
    folder: str
    work: Work | None = None
    left: tuple[str, ...] = ()
    company: bool = False
    since: float = 0.0

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # drivers that this process has asked do not survive a fork
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, self.folder, os.getpid()))
        self.process.start()
        theirs.close()

    def begin(self, work: Work, stop_at: float, *, company: bool) -> None:
        self.work, self.left, self.company, self.since = work, work.sizes, company, time.monotonic()
        self.pipe.send((work, stop_at))

    def end(self) -> None:
        self.pipe.close()  # an idle lane ends by that, and one that was interrupted takes its ranks down first
        self.process.join(timeout=10.0)
        self.kill()

    def kill(self) -> None:
        self.process.kill()  # its ranks follow
        self.process.join()


def doubtful(document: Mapping[str, Any]) -> bool:
    """Whether running beside others may have caused this verdict."""
    failure = document.get("failure") or {}
    words = f"{failure.get('name')} {failure.get('message')}".lower()
    no_memory = "outofmemory" in words or "out of memory" in words
    return document["verdict"] in (Verdict.DEADLOCK, Verdict.CRASH, Verdict.HARNESS_ERROR) or no_memory


def judge_beside(works: list[Work], *, lanes: int, platform: str, stop_at: float) -> Iterator[Judged]:
    """Yields verdicts as they come; begins nothing that would not end by `stop_at`, on the monotonic clock."""
    ranks = max((work.job.case.ranks for work in works), default=1)
    room = int(ROOM * create(platform).facts().memory_for(ranks))
    waiting, tries = planned(works, room), Tries()
    with contextlib.ExitStack() as stack:
        stack.enter_context(hold(devices_of(platform, ranks), say=print))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pkb-lanes-")))
        there = [_Lane(str(folder / str(n))) for n in range(min(lanes, len(waiting)))]
        stack.callback(_end_all, there)
        while True:
            _hand_out(waiting, there, room, stop_at)
            busy = {lane.pipe: lane for lane in there if lane.work is not None}
            if not busy:
                return
            give_up = min(lane.since for lane in busy.values()) + SILENCE_S
            ready = wait(list(busy), timeout=max(0.0, give_up - time.monotonic()))
            for lane in [lane for pipe, lane in busy.items() if pipe in ready]:
                yield from _hear(lane, waiting, tries)
            for lane in [lane for lane in there if lane.work and time.monotonic() - lane.since > SILENCE_S]:
                lane.kill()
                yield from _lost(lane, f"nothing for {SILENCE_S:.0f} s", waiting, tries)
            # One that died with work in hand is heard first: what it has not said is asked again.
            there[:] = [
                lane if lane.work is not None or lane.process.is_alive() else _Lane(lane.folder) for lane in there
            ]


def _end_all(there: list[_Lane]) -> None:
    for lane in there:
        lane.end()


def _hand_out(waiting: list[Work], there: list[_Lane], room: int, stop_at: float) -> None:
    for lane in there:
        busy = [other.work for other in there if other.work is not None]
        if lane.work is not None or any(work.alone for work in busy):
            continue
        free, left_s = room - sum(work.bytes for work in busy), stop_at - time.monotonic()
        soon = (work for work in waiting if work.in_time(left_s))
        fitting = (work for work in soon if work.bytes <= free and not (work.alone and busy))
        if (chosen := next(fitting, None)) is not None:
            waiting.remove(chosen)
            lane.begin(chosen, stop_at, company=bool(busy))
            for other in there:
                other.company |= bool(busy)


def _hear(lane: _Lane, waiting: list[Work], tries: Tries) -> Iterator[Judged]:
    assert lane.work is not None
    try:
        said: Evaluation | str = lane.pipe.recv()
    except (EOFError, OSError):
        lane.kill()
        yield from _lost(lane, "the judge's process ended", waiting, tries)
        return
    if isinstance(said, str):
        if said:
            yield from _lost(lane, said, waiting, tries)
        lane.work = None
        return
    seconds, lane.since = time.monotonic() - lane.since, time.monotonic()
    lane.left = tuple(size for size in lane.left if size != said.size)
    tries.gave(said.verdict)
    if lane.company and doubtful(said.to_dict()):
        print(f"{said.candidate.file}, {said.size}, {said.ranks} ranks: {said.verdict} in company; once more alone")
        waiting.append(lane.work._replace(sizes=(said.size,), alone=True))
        return
    result = replace(said, checks=(*said.checks, BESIDE)) if lane.company else said
    yield Judged(lane.work, said.size, result, seconds)


def _lost(lane: _Lane, why: str, waiting: list[Work], tries: Tries) -> Iterator[Judged]:
    """What it has not said is asked once more, alone; of whoever was alone it is told."""
    work, lane.work = lane.work, None
    assert work is not None
    tries.gave(None)
    if lane.company:
        waiting.append(work._replace(sizes=lane.left, alone=True))
        return
    for size in lane.left:
        yield Judged(work, size, why, time.monotonic() - lane.since)
