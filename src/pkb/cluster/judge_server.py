"""`python -m pkb.cluster.judge_server PARENT_PID`: imports the judge once and forks a child for every order.

Orders come as JSON lines on standard input, events leave as JSON lines on standard output. Each build and each evaluation has
a process of its own, so a judge that dies, hangs or leaks costs that one order; importing torch, which takes seconds, is paid
for once. Nobody outlives his parent: this process ends its children when its input closes or its parent dies, and the kernel
ends them if it is killed itself.
"""

import contextlib
import json
import os
import selectors
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pkb.cluster.orders import JudgeOrder
from pkb.platforms.device_lock import LOCK_WAIT_S
from pkb.rank.isolation.namespaces import die_with_parent
from pkb.types.errors import UserError

GRACE_S = 5.0
"""A child that is told to end takes its ranks down and removes its folders; after this it is killed."""
_TAIL = 2000
Say = Callable[[dict[str, Any]], None]


@dataclass
class _Child:
    order: JudgeOrder
    pid: int
    pipe: int
    errors: int
    deadline: float
    buffer: bytes = b""
    answer: dict[str, Any] = field(default_factory=dict)
    late: bool = False
    kill_at: float | None = None


class _Ended(Exception):
    """The parent is gone or said so."""


class Server:
    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.selector.register(0, selectors.EVENT_READ)
        self.children: dict[int, _Child] = {}
        self.unread = b""

    def serve(self) -> None:
        try:
            while True:
                for key, _ in self.selector.select(self._until_next()):
                    if key.fd == 0:
                        self._read_orders()
                    elif key.fd in self.children:
                        self._hear(self.children[key.fd])
                self._enforce()
        except _Ended:
            self._end_all()

    def _until_next(self) -> float:
        moments = [child.kill_at or child.deadline for child in self.children.values()]
        return max(0.0, min([*moments, time.monotonic() + 60]) - time.monotonic())

    def _read_orders(self) -> None:
        data = os.read(0, 1 << 16)
        if not data:
            raise _Ended
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            self._fork(JudgeOrder.of(json.loads(line)))

    def _fork(self, order: JudgeOrder) -> None:
        reading, writing = os.pipe()
        errors = os.memfd_create("pkb-errors", os.MFD_CLOEXEC)
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            _be_child(order, server=server, pipe=writing, errors=errors)
        os.close(writing)
        deadline = time.monotonic() + order.limit_s + (LOCK_WAIT_S if order.kind == "evaluate" else 0)
        self.children[reading] = _Child(order, pid, reading, errors, deadline)
        self.selector.register(reading, selectors.EVENT_READ)

    def _hear(self, child: _Child) -> None:
        data = os.read(child.pipe, 1 << 16)
        if not data:
            self._collect(child)
            return
        *lines, child.buffer = (child.buffer + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if said["what"] == "began":  # it has its device: only now does its own time run
                child.deadline = time.monotonic() + child.order.limit_s
            elif said["what"] == "stage":
                _emit(said | {"id": child.order.id})
            else:
                child.answer = said

    def _enforce(self) -> None:
        now = time.monotonic()
        for child in list(self.children.values()):
            if child.kill_at is None and now >= child.deadline:
                child.late, child.kill_at = True, now + GRACE_S
                _signal(child.pid, signal.SIGTERM)
            elif child.kill_at is not None and now >= child.kill_at:
                child.kill_at = now + GRACE_S
                _signal(child.pid, signal.SIGKILL)

    def _collect(self, child: _Child) -> None:
        """Its pipe is closed, so it ends or has ended."""
        status = _wait(child.pid)
        text = _read_tail(child.errors)
        self.selector.unregister(child.pipe)
        os.close(child.pipe)
        os.close(child.errors)
        del self.children[child.pipe]
        if child.late:
            event = {"what": "late", "text": f"it took more than {child.order.limit_s:.0f} s"}
        elif child.answer:
            event = child.answer
        else:
            how = signal.Signals(-status).name if status < 0 else f"status {status}"
            event = {"what": "lost", "text": f"the judge's process ended by {how}; {text}".rstrip("; ")}
        _emit(event | {"id": child.order.id})

    def _end_all(self) -> None:
        for child in self.children.values():
            _signal(child.pid, signal.SIGTERM)
        give_up = time.monotonic() + GRACE_S
        for child in self.children.values():
            _wait(child.pid, within_s=max(0.0, give_up - time.monotonic()))


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


def _emit(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


# -- the child --------------------------------------------------------------------------------------------------------


def _be_child(order: JudgeOrder, *, server: int, pipe: int, errors: int) -> None:
    """Never returns."""
    try:
        die_with_parent(server)
        signal.signal(signal.SIGTERM, _interrupt)
        os.dup2(errors, 2)
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(quiet, 0)
        os.dup2(quiet, 1)  # what a library prints must not end up among the events

        def say(message: dict[str, Any]) -> None:
            view = memoryview((json.dumps(message, allow_nan=False, default=str) + "\n").encode())
            while view:
                view = view[os.write(pipe, view) :]

        try:
            say({"what": "done", "document": _carry_out(order, say)})
        except UserError as error:
            say({"what": "refused", "text": str(error)})
        except Exception:  # the process boundary: our bug, told to the sweep
            say({"what": "broken", "text": traceback.format_exc()[-_TAIL:]})
    finally:
        os._exit(0)


def _interrupt(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: what follows is cleaning up
    raise KeyboardInterrupt


def _carry_out(order: JudgeOrder, say: Say) -> dict[str, Any]:
    # The name tells the judge's own sweeper whose folder it is, should this process be killed outright.
    with tempfile.TemporaryDirectory(prefix=f"pkb-candidate-{os.getpid()}-") as folder:
        candidate = Path(folder) / Path(order.filename).name
        candidate.write_bytes(order.source)
        return _build(order, candidate) if order.kind == "build" else _evaluate(order, candidate, say)


def _build(order: JudgeOrder, candidate: Path) -> dict[str, Any]:
    """Fills the cache of builds, so that the evaluation finds everything there. What the build says is the judge's to tell."""
    from pkb.cluster.case import job_for
    from pkb.judge.crew.sides import build_environment
    from pkb.judge.stages.build import prebuild
    from pkb.platforms.registry import create

    os.nice(19)
    job = job_for(order, candidate)
    report = prebuild(
        candidate,
        limit_s=order.build_limit_s,
        environment=build_environment(create(job.case.platform).facts().hardware),
    )
    return {"built": len(report.built), "error": bool(report.error), "timed_out": report.timed_out}


def _evaluate(order: JudgeOrder, candidate: Path, say: Say) -> dict[str, Any]:
    from pkb.cluster.case import job_for
    from pkb.judge.session import evaluate
    from pkb.platforms.device_lock import devices_of, hold

    if order.cores:
        os.sched_setaffinity(0, order.cores)
    job = job_for(order, candidate)
    with hold(devices_of(job.case.platform, job.case.ranks), say=lambda text: say({"what": "stage", "text": text})):
        say({"what": "began"})
        return evaluate(job, progress=lambda text: say({"what": "stage", "text": text})).to_dict()


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
