"""Runs a function in a forked child and brings back its result: isolation cannot be undone, so each test needs one."""

import contextlib
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pkb.rank.isolation.namespaces import Layers, enter_namespaces, finish_namespaces


def in_child(work: Callable[[], Any]) -> Any:
    """The result of `work`, or its exception raised here with the child's traceback as text."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read_end)
            try:
                answer: tuple[bool, Any] = (True, work())
            except BaseException:
                answer = (False, traceback.format_exc())
            with os.fdopen(write_end, "wb") as pipe:
                pickle.dump(answer, pipe)
            sys.stdout.flush()
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    assert data, f"the child ended without an answer, status {status}"
    worked, answer = pickle.loads(data)
    assert worked, answer
    return answer


def in_namespaces(work: Callable[[], Any], *, shm: int = 64 << 20, **finish: Any) -> tuple[dict[str, str], Any]:
    """The report of the namespaces, and the result of `work` as a child of the inner init."""

    def carrier() -> tuple[dict[str, str], Any]:
        layers: Layers = enter_namespaces(private_shm_bytes=shm, private_tmp_bytes=64 << 20)
        return in_child(lambda: (finish_namespaces(layers, **finish), in_child(work)))

    return in_child(carrier)


@contextlib.contextmanager
def peer(work: Callable[[], Any]) -> Iterator[int]:
    """A child that does `work`, says so, and then waits to be killed; its PID."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
            os.write(write_end, b"x")
            signal.pause()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(write_end)
    try:
        assert os.read(read_end, 1) == b"x", "the peer failed"
        yield child
    finally:
        os.close(read_end)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def error_of(work: Callable[[], Any]) -> int:
    """The errno with which `work` failed, 0 if it did not."""
    try:
        work()
    except OSError as error:
        return error.errno or -1
    return 0


def status_field(name: str) -> str:
    """One field of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(name + ":"))
