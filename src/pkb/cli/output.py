"""Where results and progress go: results to standard output, everything else to standard error."""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pkb.types.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

# Piped tables are for grep and scripts: wide enough that a row is one line.
PIPED_WIDTH = 1000
SILENT_S = 10.0


class Progress(Protocol):
    def __call__(self, what: str, /) -> None: ...


def stdout_console(*, piped_width: int | None = None) -> "Console":
    from rich.console import Console

    width = None if sys.stdout.isatty() else piped_width
    # highlight=False: colours mean something here (a verdict), so rich must not colour every number it sees.
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def check_json_target(out: str | None) -> None:
    """Fails before hours of work, not after them."""
    if out is None or out == "-":
        return
    path = Path(out)
    if path.is_dir():
        raise UserError(f"--json {out} is a directory", "give a file, or - for standard output")
    if not path.suffix and os.sep not in out:  # `--json latest`: the word was meant for something else
        raise UserError(f"is {out} the file for --json?", f"--json - is standard output, --json ./{out} that file")
    if not path.absolute().parent.is_dir():
        raise UserError(f"the folder of --json {out} does not exist", f"mkdir -p {path.parent}")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise UserError(f"--json {out} cannot be written", "choose another place")


def write_json(out: str, document: Any) -> None:
    """Writes the document to a file, or to standard output if `out` is `-`."""
    text = document if isinstance(document, str) else json.dumps(document, indent=2, allow_nan=False, default=str)
    if out == "-":
        print(text)
        return
    try:
        Path(out).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from error


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Shows the current stage and its seconds on standard error: a live line on a terminal, else a line a stage."""
    started = time.monotonic()
    if not sys.stderr.isatty():
        lines = _Lines(started)
        try:
            yield lines.stage
        finally:
            lines.over.set()
        return

    from rich.console import Console
    from rich.progress import Progress as Live
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Live(*columns, console=Console(stderr=True), transient=True) as live:
        task = live.add_task("start", total=None)

        def update(what: str, /) -> None:
            live.reset(task, description=what)

        yield update


class _Lines:
    """A line a stage, and one more for as often as it lasts `SILENT_S`: a log in which nothing happens looks like a hang."""

    def __init__(self, started: float) -> None:
        self.started, self.over = started, threading.Event()
        self._now, self._said = "", started
        threading.Thread(target=self._remind, daemon=True).start()

    def stage(self, what: str, /) -> None:
        self._now, self._said = what, time.monotonic()
        print(f"[{self._said - self.started:6.1f} s] {what}", file=sys.stderr, flush=True)

    def _remind(self) -> None:
        while not self.over.wait(SILENT_S / 10):
            if self._now and time.monotonic() - self._said > SILENT_S:
                self.stage(self._now if self._now.startswith("still: ") else f"still: {self._now}")


@contextmanager
def announced(what: str) -> Iterator[None]:
    """Says at once on standard error what takes a moment; on a terminal the line is gone when it is over."""
    on_terminal = sys.stderr.isatty()
    print(f"{what} ...", end="" if on_terminal else "\n", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if on_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def load_torch() -> None:
    """Problems are torch programs, and importing torch takes seconds: nobody should wonder what is going on."""
    if "torch" not in sys.modules:
        with announced("loading torch"):
            import torch  # noqa: F401
