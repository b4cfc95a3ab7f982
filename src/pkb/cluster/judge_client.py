"""The other end of `judge_server.py`: starts it, sends orders, hands events on. For a sweep and for machines of a cluster."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable

from pkb.cluster.judge_server import GRACE_S
from pkb.cluster.orders import Event, JudgeOrder
from pkb.store.secret_check import without_secrets


class JudgeServer:
    """Started with the first order, and again after it has died. Use it from one thread that lives as long as it does: the
    kernel ends the server together with the thread that started it."""

    def __init__(self, on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._open: dict[str, JudgeOrder] = {}
        self._ended: subprocess.Popen[bytes] | None = None
        """The server that is known to be gone. `poll` may not know it yet: a process closes its pipes before it can be
        waited for, and an order that is written in between would be lost without a word."""
        self._guard = threading.Lock()

    def send(self, order: JudgeOrder) -> None:
        """Whatever happens, one final event follows."""
        process = self._running()  # before the order is noted: a dead server's reader gives up all that is noted
        assert process.stdin is not None
        with self._guard:
            self._open[order.id] = order
            ended = self._ended is process
        if ended:
            self._final(Event(order.id, "lost", "the judge's server has just ended"))
            return
        try:
            process.stdin.write((json.dumps(order.to_dict()) + "\n").encode())
            process.stdin.flush()
        except OSError as error:
            self._forget()
            self._final(Event(order.id, "lost", f"the judge's server takes no orders: {error.strerror}"))

    def close(self) -> None:
        """Ends the server and all that it has started; events of what was under way are dropped."""
        with self._guard:
            self._open.clear()
        self._forget()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process is not self._ended and self._process.poll() is None:
            return self._process
        self._forget()
        # A session of its own: Ctrl-C at the terminal is for the sweep, which then ends this in good order.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pkb.cluster.judge_server", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=without_secrets(os.environ) | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        return self._process

    def _forget(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):  # unsent bytes for a server that is gone
            process.stdin.close()
        try:
            process.wait(timeout=2 * GRACE_S + 5)
        except subprocess.TimeoutExpired:
            process.kill()  # its children follow
            process.wait()
        if self._reader is not None:
            self._reader.join(timeout=GRACE_S)
        process.stdout.close()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said = json.loads(line)
            event = Event(said["id"], said["what"], said.get("text", ""), said.get("document", {}))
            if event.what == "stage":
                self._on_event(event)
            else:
                self._final(event)
        with self._guard:
            self._ended = process
            orphaned = list(self._open)
        for order_id in orphaned:
            self._final(Event(order_id, "lost", f"the judge's server ended (status {process.poll()})"))

    def _final(self, event: Event) -> None:
        with self._guard:
            known = self._open.pop(event.id, None)
        if known is not None:
            self._on_event(event)
