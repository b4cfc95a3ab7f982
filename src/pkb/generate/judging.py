"""Has candidates judged in a process of its own, one at a time, without the keys of this one."""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from pkb.store.secret_check import without_secrets
from pkb.types.errors import UserError

EVALUATION_LIMIT_S = 3 * 3600.0
"""The judge limits every stage by itself, and waits up to an hour for the device; this is for a judge that is stuck."""
_END_S = 30.0

Document = dict[str, Any]
"""A verdict as `Evaluation.to_dict` gives it."""
Progress = Callable[[str], None]


class JudgeFailed(Exception):
    """The judge's process died or broke: no verdict, and nobody's fault but ours."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A candidate and the case in which it is to be judged."""

    code: str
    filename: str
    problem: str
    platform: str
    ranks: int
    size: str
    dtype: str
    plan: str
    problems_folder: str | None = None
    call_limit_s: float = 60.0


class Judge:
    """Started at the first request. Threads may share it: they wait for one another."""

    def __init__(self, progress: Progress = lambda what: None) -> None:
        self._progress = progress
        self._one_at_a_time = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._rest = b""

    def evaluate(self, request: Request) -> Document:
        """The verdict as a document."""
        with self._one_at_a_time:
            process = self._running()
            assert process.stdin is not None
            deadline = time.monotonic() + EVALUATION_LIMIT_S
            try:
                process.stdin.write(json.dumps(asdict(request)).encode() + b"\n")
                process.stdin.flush()
                while "progress" in (message := json.loads(self._line(process, deadline))):
                    self._progress(str(message["progress"]))
            except (OSError, ValueError) as error:
                self._end(process)
                raise JudgeFailed(f"the judge's process is gone: {error}") from error
        if "user_error" in message:
            raise UserError(message["user_error"], message["fix"])
        if "error" in message:
            raise JudgeFailed(message["error"])
        document: Document = message["evaluation"]
        return document

    def close(self) -> None:
        """Ends it, in the middle of an evaluation too; then the evaluation's caller gets JudgeFailed."""
        self._closed = True
        if self._process is not None:
            self._end(self._process)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise JudgeFailed("the judge was closed")
        if self._process is None or self._process.poll() is not None:
            self._rest = b""
            # A session of its own: Ctrl-C reaches this process, which then decides. Standard error stays ours.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pkb.generate.judge_process"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                bufsize=0, start_new_session=True, env=without_secrets(os.environ),
            )  # fmt: skip
        return self._process

    def _line(self, process: subprocess.Popen[bytes], deadline: float) -> bytes:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise OSError(f"no verdict within {EVALUATION_LIMIT_S:.0f} s")
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                if not chunk:
                    raise OSError("it ended without a verdict")
                self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Closing its input interrupts it; it cleans up after itself. Only one that does not is killed."""
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
