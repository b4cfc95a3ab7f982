"""How a sweep goes, on standard error: a bar with counts on a terminal, else lines."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pkb.cli.counts_words import word_words

if TYPE_CHECKING:
    from rich.progress import Progress

    from pkb.cluster.sweep import Watcher
    from pkb.store import Task

PHASES = frozenset({"asking the model", "building", "judging"})
"""As a sweep calls what it begins; the judge's own stages inside them are told on a terminal only."""
BEAT_S = 15.0
_SHOWN_CHARACTERS = 100
_SHOWN_AT_ONCE = 3


def _brief(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 3] + "..."


def _words(task: "Task") -> str:
    sample = f" sample {task.sample}" if task.sample else ""
    return f"{task.problem} {task.backend}{sample}"


def counts_words(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {word_words(verdict)}" for verdict, count in counts.most_common())


class PlainLines:
    """A line for every start of a phase, a verdict, a failure; and one in a while that says how it stands."""

    def __init__(self, *, total: int, done: int) -> None:
        self.total, self.done, self.began = total, done, time.monotonic()
        self.done_before = done
        self.now: dict[str, str] = {}
        """What is being done, by task."""
        self._said = self.began
        self._guard = threading.Lock()

    def _print(self, text: str) -> None:
        self._said = time.monotonic()
        print(f"[{self._said - self.began:6.1f} s] {text}", file=sys.stderr, flush=True)

    def stage(self, task: "Task", text: str) -> None:
        with self._guard:
            first_word = self.now.get(task.key) is None
            self.now[task.key] = f"{_words(task)}: {text}"
            if text in PHASES or text.startswith("waiting") or first_word:
                self._print(self.now[task.key])

    def judged(self, task: "Task", verdict: str, detail: str) -> None:
        with self._guard:
            self.done += 1
            self.now.pop(task.key, None)
            why = f": {_brief(detail)}" if detail else ""
            self._print(f"{self._standing()} {_words(task)}: {word_words(verdict)}{why}")

    def failed(self, task: "Task", why: str, *, again: bool) -> None:
        with self._guard:
            self.now.pop(task.key, None)
            if not again:
                self.done += 1
            what = "no verdict, trying again" if again else "no verdict, given up"
            self._print(f"{_words(task)}: {what}: {_brief(why)}")

    def beat(self) -> None:
        """Says what is going on if nothing was said for a while: a build or a hanging candidate takes minutes."""
        with self._guard:
            if time.monotonic() - self._said >= BEAT_S:
                self._print("  ".join([self._standing(), *list(self.now.values())[:_SHOWN_AT_ONCE]]))

    def _standing(self) -> str:
        """`3/67, about 4 min left`."""
        here, left = self.done - self.done_before, self.total - self.done
        if not here or left <= 0:
            return f"{self.done}/{self.total}"
        return f"{self.done}/{self.total}, about {duration_words((time.monotonic() - self.began) / here * left)} left:"


def duration_words(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


@contextmanager
def watch(*, total: int, done: int, counts: Counter[str]) -> Iterator["Watcher"]:
    """`counts` are the verdicts that are there already, `done` how many tasks have their outcome."""
    if not sys.stderr.isatty():
        lines, over = PlainLines(total=total, done=done), threading.Event()

        def beat() -> None:
            while not over.wait(1.0):
                lines.beat()

        threading.Thread(target=beat, daemon=True).start()
        try:
            yield lines
        finally:
            over.set()
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
