"""`python -m pkb.judge.service.server PARENT_PID`: imports the judge once and forks a child for every order.

Orders come as JSON lines on standard input, events leave as JSON lines on standard output. Each build and each evaluation has
a process of its own, so a judge that dies, hangs, leaks or talks nonsense costs that one order; importing torch, which takes
seconds, is paid for once. No process outlives its parent: this one ends its children when its input closes or its parent
dies, and the kernel ends them if it is killed itself.
"""

import contextlib
import os
import selectors
import signal
import sys
import time
from dataclasses import dataclass

from pkb.judge.service.child import be_child
from pkb.judge.service.messages import (
    MAX_LINE_BYTES,
    CancelOrder,
    Garbled,
    JudgeEvent,
    JudgeOrder,
    What,
    decode_event,
    decode_request,
)
from pkb.platforms.device_lock import LOCK_WAIT_S
from pkb.types.errors import UserError
from pkb.types.processes import die_with_parent

GRACE_S = 5.0
"""A child that is told to end takes its ranks down and removes its folders; after this it is killed."""
MAX_STAGES = 20_000
"""Events of one order that are passed on; a judge that says more is not listened to."""
_TAIL = 2000


@dataclass
class _Child:
    order: JudgeOrder
    pid: int
    pipe: int
    errors: int
    deadline: float
    unread: bytes = b""
    answer: JudgeEvent | None = None
    ended: tuple[What, str] | None = None
    """Why it is told to end before it has answered."""
    kill_at: float | None = None
    stages: int = 0


class _Ended(Exception):
    """The parent is gone or said so."""


class Server:
    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.selector.register(0, selectors.EVENT_READ)
        self.children: dict[int, _Child] = {}
        """By pipe."""
        self.unread = b""

    def serve(self) -> None:
        try:
            while True:
                for key, _ in self.selector.select(self._until_next()):
                    if key.fd == 0:
                        self._read_requests()
                    elif key.fd in self.children:
                        self._hear(self.children[key.fd])
                self._enforce()
        except _Ended:
            self._end_all()

    def _until_next(self) -> float:
        moments = [child.kill_at or child.deadline for child in self.children.values()]
        return max(0.0, min([*moments, time.monotonic() + 60]) - time.monotonic())

    def _read_requests(self) -> None:
        data = os.read(0, 1 << 16)
        if not data:
            raise _Ended
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            request = decode_request(line)
            if isinstance(request, CancelOrder):
                for child in self.children.values():
                    if child.order.id == request.id:
                        self._end(child, "cancelled", "it was cancelled")
            else:
                self._fork(request)

    def _fork(self, order: JudgeOrder) -> None:
        if order.kind == "evaluate":
            _import_ahead(order.case.platform)
        reading, writing = os.pipe()
        errors = os.memfd_create("pkb-errors", os.MFD_CLOEXEC)
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            be_child(order, server=server, pipe=writing, errors=errors)
        os.close(writing)
        # Until it says that it began it may be waiting for its device, which the lock itself bounds.
        deadline = time.monotonic() + order.limit_s + (LOCK_WAIT_S if order.kind == "evaluate" else 0)
        self.children[reading] = _Child(order, pid, reading, errors, deadline)
        self.selector.register(reading, selectors.EVENT_READ)

    def _hear(self, child: _Child) -> None:
        data = os.read(child.pipe, 1 << 16)
        if not data:
            self._collect(child)
            return
        *lines, child.unread = (child.unread + data).split(b"\n")
        try:
            if len(child.unread) > MAX_LINE_BYTES:
                raise Garbled(f"a line of more than {MAX_LINE_BYTES} bytes")
            for line in lines:
                self._on(child, decode_event(line))
        except Garbled as error:
            child.unread = b""
            self._end(child, "broken", f"the judge's process said {error}")

    def _on(self, child: _Child, event: JudgeEvent) -> None:
        if event.what == "began":
            child.deadline = time.monotonic() + child.order.limit_s
        if event.is_last:
            child.answer = event
        elif child.stages < MAX_STAGES:
            child.stages += 1
            _emit(event)

    def _enforce(self) -> None:
        now = time.monotonic()
        for child in list(self.children.values()):
            if child.kill_at is None and now >= child.deadline:
                self._end(child, "late", f"it took more than {child.order.limit_s:.0f} s")
            elif child.kill_at is not None and now >= child.kill_at:
                child.kill_at = now + GRACE_S
                _signal(child.pid, signal.SIGKILL)

    def _end(self, child: _Child, what: What, why: str) -> None:
        if child.ended is None:
            child.ended, child.kill_at = (what, why), time.monotonic() + GRACE_S
            _signal(child.pid, signal.SIGTERM)

    def _collect(self, child: _Child) -> None:
        """Its pipe is closed, so it ends or has ended."""
        status = _wait(child.pid)
        text = _read_tail(child.errors)
        self.selector.unregister(child.pipe)
        os.close(child.pipe)
        os.close(child.errors)
        del self.children[child.pipe]
        if child.ended is not None:
            event = JudgeEvent(child.order.id, *child.ended)
        elif child.answer is not None:
            event = child.answer
        else:
            how = signal.Signals(-status).name if status < 0 else f"status {status}"
            event = JudgeEvent(child.order.id, "lost", f"the judge's process ended by {how}; {text}".rstrip("; "))
        _emit(event)

    def _end_all(self) -> None:
        for child in self.children.values():
            _signal(child.pid, signal.SIGTERM)
        give_up = time.monotonic() + GRACE_S
        for child in self.children.values():
            _wait(child.pid, within_s=max(0.0, give_up - time.monotonic()))


def _import_ahead(platform: str) -> None:
    """Here and not in the child, so that all children have their ranks forked from the same processes."""
    from pkb.judge.crew.warm import import_ahead
    from pkb.platforms.registry import PLATFORMS, create

    if platform in PLATFORMS:  # finding out what `auto` means opens drivers, which is for children to do
        with contextlib.suppress(UserError):  # the child meets it as well, and says so
            import_ahead(create(platform))


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _wait(pid: int, *, within_s: float = GRACE_S) -> int:
    """Its exit status, negative for a signal; killed if it does not end in time."""
    give_up = time.monotonic() + within_s
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > give_up:
            _signal(pid, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        time.sleep(0.005)


def _read_tail(fd: int) -> str:
    size = os.fstat(fd).st_size
    return os.pread(fd, _TAIL, max(0, size - _TAIL)).decode(errors="replace").strip()


def _emit(event: JudgeEvent) -> None:
    sys.stdout.buffer.write(event.encode())
    sys.stdout.buffer.flush()


def main() -> None:
    def end(number: int, frame: object) -> None:
        raise _Ended

    signal.signal(signal.SIGTERM, end)
    try:
        die_with_parent(int(sys.argv[1]), signal=signal.SIGTERM)
        import pkb.judge.session  # noqa: F401  before the first fork: every child has it then
    except _Ended:
        return
    Server().serve()


if __name__ == "__main__":
    main()
