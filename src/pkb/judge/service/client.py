"""The other end of `server.py`: starts it, sends orders, hands events on."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable

from pkb.judge.service.messages import MAX_LINE_BYTES, CancelOrder, Garbled, JudgeEvent, JudgeOrder, decode_event
from pkb.judge.service.server import GRACE_S
from pkb.types.processes import without_secrets

COMMAND = (sys.executable, "-m", "pkb.judge.service.server")


class _Process:
    """A server that runs. The thread that reads from it has started it too: the kernel ends a child together with the thread
    that forked it, and the threads that send orders come and go."""

    def __init__(self, on_line: Callable[[bytes], None], on_end: Callable[["_Process", str], None]) -> None:
        self._on_line, self._on_end = on_line, on_end
        self._popen: subprocess.Popen[bytes] | None = None
        self._error: OSError | None = None
        self.ended = False
        """Its output is over. `poll` may not know it yet: a process closes its pipes before it can be waited for."""
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    @property
    def pid(self) -> int:
        assert self._popen is not None
        return self._popen.pid

    def write(self, data: bytes) -> None:
        assert self._popen is not None
        assert self._popen.stdin is not None
        self._popen.stdin.write(data)
        self._popen.stdin.flush()

    def end(self) -> None:
        """Its input closes, so it ends its children and then itself; only one that does not is killed."""
        assert self._popen is not None
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):  # unsent bytes for a server that is gone
            self._popen.stdin.close()
        try:
            self._popen.wait(timeout=2 * GRACE_S + 5)
        except subprocess.TimeoutExpired:
            self._popen.kill()  # its children follow
            self._popen.wait()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=GRACE_S)

    def _run(self) -> None:
        # A session of its own: Ctrl-C at the terminal is for the caller, which then ends this in good order.
        try:
            self._popen = subprocess.Popen(
                [*COMMAND, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=without_secrets(os.environ) | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
            )
        except OSError as error:
            self._error = error
            return
        finally:
            self._started.set()
        why = self._read(self._popen)
        self._on_end(self, why)

    def _read(self, popen: subprocess.Popen[bytes]) -> str:
        """Until it ends or talks nonsense; says which."""
        assert popen.stdout is not None
        with popen.stdout as said:
            try:
                while line := said.readline(MAX_LINE_BYTES + 1):
                    if not line.endswith(b"\n"):
                        raise Garbled(f"an unfinished line of {len(line)} bytes")
                    self._on_line(line)
            except Garbled as error:
                popen.kill()
                return f"the judge's server said {error}"
        return f"the judge's server ended (status {popen.poll()})"


class JudgeClient:
    """Starts its server with the first order, and again if it has died. Any thread may use it; events come from a separate
    thread."""

    def __init__(self, on_event: Callable[[JudgeEvent], None]) -> None:
        self._on_event = on_event
        self._open: set[str] = set()
        self._process: _Process | None = None
        """None also from the moment that its output has ended: an order that is written after it would be lost unnoticed."""
        self._guard = threading.Lock()
        self._sending = threading.Lock()

    def send(self, order: JudgeOrder) -> None:
        """One last event always follows, unless the client is closed first."""
        with self._sending:
            try:
                process = self._running(order.id)
            except OSError as error:  # not noted yet
                self._on_event(JudgeEvent(order.id, "lost", f"the judge's server does not start: {error}"))
                return
            try:
                process.write(order.encode())
            except (OSError, ValueError) as error:
                self._last(JudgeEvent(order.id, "lost", f"the judge's server takes no orders: {error}"))

    def cancel(self, order_id: str) -> None:
        with self._guard:
            process = self._process if order_id in self._open else None
        if process is not None:
            with self._sending, contextlib.suppress(OSError, ValueError):  # a server that is gone has nothing under way
                process.write(CancelOrder(order_id).encode())

    def close(self) -> None:
        """Ends the server and everything that it has started; events of running orders are dropped."""
        with self._guard:
            self._open.clear()
            process, self._process = self._process, None
        if process is not None:
            process.end()

    @property
    def pid(self) -> int | None:
        """The server's process id, while one runs."""
        with self._guard:
            return self._process.pid if self._process else None

    def _running(self, order_id: str) -> _Process:
        """The server, with the order noted as its: should it end from now on, the order is reported lost."""
        with self._guard:
            if self._process is not None:
                self._open.add(order_id)
                return self._process
        process = _Process(self._on_line, self._on_end)
        with self._guard:
            if process.ended:
                raise OSError("it ended at once")
            self._process = process
            self._open.add(order_id)
        return process

    def _on_line(self, line: bytes) -> None:
        event = decode_event(line)
        if event.is_last:
            self._last(event)
        else:
            with self._guard:
                known = event.id in self._open
            if known:
                self._on_event(event)

    def _on_end(self, process: _Process, why: str) -> None:
        with self._guard:
            process.ended = True
            if self._process is not process:  # closed, or not even begun
                return
            self._process, orphaned = None, list(self._open)
        process.end()
        for order_id in orphaned:
            self._last(JudgeEvent(order_id, "lost", why))

    def _last(self, event: JudgeEvent) -> None:
        with self._guard:
            known = event.id in self._open
            self._open.discard(event.id)
        if known:
            self._on_event(event)
