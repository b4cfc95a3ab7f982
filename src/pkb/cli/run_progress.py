"""How a sweep goes, on standard error: a bar with counts on a terminal, else a line for each verdict."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

    from pkb.cluster.sweep import Watcher
    from pkb.store import Task

_SHOWN_CHARACTERS = 100


def _brief(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 3] + "..."


def _words(task: "Task") -> str:
    sample = f" sample {task.sample}" if task.sample else ""
    return f"{task.problem} {task.backend}{sample}"


def counts_words(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())


class PlainLines:
    """A line for what is worth one: stages only when they say that something is being waited for."""

    def __init__(self, *, total: int, done: int) -> None:
        self.total, self.done, self.began = total, done, time.monotonic()

    def _print(self, text: str) -> None:
        seconds = time.monotonic() - self.began
        print(f"[{seconds:6.1f} s] {text}", file=sys.stderr, flush=True)

    def stage(self, task: "Task", text: str) -> None:
        if text.startswith("waiting"):
            self._print(f"{_words(task)}: {text}")

    def judged(self, task: "Task", verdict: str, detail: str) -> None:
        self.done += 1
        self._print(f"{self.done}/{self.total} {_words(task)}: {verdict}: {_brief(detail)}")

    def failed(self, task: "Task", why: str, *, again: bool) -> None:
        what = "no verdict, trying again" if again else "no verdict, given up"
        self._print(f"{_words(task)}: {what}: {_brief(why)}")


@contextmanager
def watch(*, total: int, done: int, counts: Counter[str]) -> Iterator["Watcher"]:
    """`counts` are the verdicts that are there already, `done` how many tasks have their outcome."""
    if not sys.stderr.isatty():
        yield PlainLines(total=total, done=done)
        return

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    plain = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), plain)
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    with Progress(*columns, console=console, speed_estimate_period=600) as live:
        yield _Bar(live, total=total, done=done, counts=counts)


class _Bar:
    def __init__(self, live: "Progress", *, total: int, done: int, counts: Counter[str]) -> None:
        self.live, self.counts = live, Counter(counts)
        self.now: dict[str, str] = {}
        self.bar = live.add_task("", total=total, completed=done)
        self._show()

    def stage(self, task: "Task", text: str) -> None:
        self.now[task.key] = f"{_words(task)}: {text}"
        self._show()

    def judged(self, task: "Task", verdict: str, detail: str) -> None:
        self.now.pop(task.key, None)
        self.counts[verdict] += 1
        self.live.advance(self.bar)
        self._show()

    def failed(self, task: "Task", why: str, *, again: bool) -> None:
        self.now.pop(task.key, None)
        self.live.console.print(f"{_words(task)}: {'trying again' if again else 'given up'}: {_brief(why)}")
        if not again:
            self.counts["no verdict"] += 1
            self.live.advance(self.bar)
        self._show()

    def _show(self) -> None:
        now = next(reversed(self.now.values()), "")
        self.live.update(self.bar, description="  ".join(filter(None, (counts_words(self.counts), now))))
