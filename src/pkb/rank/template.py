"""A process with torch imported that forks a warden whenever one is wanted: the import costs seconds, a fork milliseconds.

    judge -> template -> warden -> middle -> init -> ranks

It holds nothing of any candidate and nothing of a judge's: it is executed in the environment that an executed warden has, less
what differs from side to side, and it never reads what is in the descriptors that it passes on to a child, the oracle's secret
among them, and closes. The child makes itself what an executed warden would be: descriptors, environment, folder, cores,
session. Runs as `python -m pkb.rank.template CONTROL_FD OWNER_PID ROLE`, ends with its owner, and its wardens with it; a warden
also ends with the judge that asked for it. One with threads, or with CUDA initialised, forks nobody.
"""

import array
import ctypes
import fcntl
import os
import signal
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path

from pkb.rank import warden
from pkb.rank.isolation.namespaces import fork_bound
from pkb.rank.isolation.syscalls import thread_count
from pkb.types.processes import die_with_parent
from pkb.types.protocol.codec import decode
from pkb.types.protocol.settings import ForkedWarden

LAST = ("HOME", "PKB_ROOM")
"""Variables of the template alone, the last of its environment: they keep room where the kernel shows the first one of a
process."""
MOST_DESCRIPTORS = 253
"""In one packet: the kernel's limit."""


def main() -> None:
    die_with_parent(int(sys.argv[2]))
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    warden.preload(sys.argv[3])
    if thread_count() > 1 or sys.modules["torch"].cuda.is_initialized():
        sys.exit("this process has threads or a CUDA context, which a fork of it would lack")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps; a judge sees an end by its pidfd
    while descriptors := _received(control):
        try:
            fork_bound(partial(_be_warden, descriptors))
        except OSError:
            pass  # no process to be had: the judge sees its end of the link closed
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _received(control: socket.socket) -> list[int]:
    """Of the next request; none once the owner has closed its end."""
    space = socket.CMSG_SPACE(MOST_DESCRIPTORS * 4)
    _, ancillary, _, _ = control.recvmsg(1, space, socket.MSG_CMSG_CLOEXEC)
    found = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return found.tolist()


def _be_warden(descriptors: list[int]) -> None:
    """In the child. Nothing returns from here: `fork_bound` ends it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the template's may be ignored, from a shell's background
    os.setsid()
    start = decode(os.pread(descriptors[0], os.fstat(descriptors[0]).st_size, 0), (ForkedWarden,))
    link, judge = _take_places(start, descriptors)
    os.sched_setaffinity(0, start.cores)
    for name in LAST:
        os.environ.pop(name)
    os.environ.update(start.environment)
    _show(start.environment)
    os.chdir(start.folder)
    sys.path[0] = start.folder  # of `python -m`, the working directory at its start
    tempfile.tempdir = None
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # Python's own is seeded anew in every fork, torch's in every rank
    with socket.socket(fileno=link) as said:
        said.send(str(os.getpid()).encode())
        if not said.recv(1):  # given up, or the judge is gone
            return
    os._exit(warden.serve(warden.read_settings(start.settings), judge=judge))


def _take_places(start: ForkedWarden, descriptors: list[int]) -> tuple[int, int]:
    """The descriptors at the numbers that they have in the judge, as after an execution, and no other; where the link to the
    judge and the judge's pidfd are, out of their way."""
    free = max(*start.descriptors, *descriptors) + 1
    _, link, judge, output, *theirs = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, free) for fd in descriptors)
    kept = {link, judge, output, *theirs}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2 and int(name) not in kept:
            _close(int(name))
    for source, target in zip(theirs, start.descriptors, strict=True):
        os.dup2(source, target)
        os.close(source)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    return link, judge


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        return  # that of the listing


def _show(environment: dict[str, str]) -> None:
    """Where /proc/PID/environ reads: by its environment a person, or a test, tells whose process this is."""
    start, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[47:49])
    room = ctypes.string_at(start, end - start).find(f"\0{LAST[0]}=".encode()) + 1
    if not room:
        return
    shown = b"".join(os.fsencode(f"{name}={value}\0") for name, value in environment.items())
    size = end - start - room
    ctypes.memmove(start + room, shown[: size - 1].ljust(size, b"\0"), size)


if __name__ == "__main__":
    main()
