"""One evaluation at a time on a device: a queue for each, so that two of them do not disturb each other's times.

Whoever comes draws a number from the device's file and locks the byte of that number; the device is theirs when no lower
byte is locked. The kernel drops the lock when its holder dies, however it dies, so nobody waits for the dead, and the file
never grows. Whoever runs ranks on a GPU takes it: judge, lint and probe. The files lie in `PKB_LOCK_DIR`, or in a folder of
/tmp that all users of the machine share.
"""

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pkb.types.errors import UserError

LOCK_WAIT_S = 4 * 3600.0
"""How long an evaluation waits for its device while somebody else measures there."""
_POLL_S = 0.2
_SAY_S = 30.0
_GUARD, _FIRST = 0, 1 << 32
"""The byte that is locked while a number is drawn, and that of the first number. Locks may lie beyond a file's end."""
_LOCK = struct.Struct("@hhqqi0q")
"""`struct flock`: kind, from where, start, length, process."""
_HEADER = struct.Struct("=Q")
_held: dict[str, int] = {}
"""Devices and the process that holds them: a forked child must take them for itself."""


def lock_folder() -> Path:
    return Path(os.environ.get("PKB_LOCK_DIR") or "/tmp/pkb-device-locks")


def devices_of(platform: str, ranks: int) -> list[str]:
    """Names of the devices that such an evaluation measures on; none on a CPU, where cores are shared out instead."""
    from pkb.platforms.registry import create

    return create(platform).devices(ranks)


@contextlib.contextmanager
def hold(
    devices: Sequence[str], *, wait_s: float = LOCK_WAIT_S, say: Callable[[str], None] = lambda text: None
) -> Iterator[None]:
    """All these devices for ourselves while the block runs; taken in one fixed order, so that no two wait for each other.
    What this process holds already, it does not wait for."""
    with contextlib.ExitStack() as stack:
        deadline = time.monotonic() + wait_s
        for device in sorted({device for device in devices if _held.get(device) != os.getpid()}):
            fd = _open(lock_folder() / f"{''.join(c if c.isalnum() or c in '-_.' else '_' for c in device)}.queue")
            stack.callback(_leave, fd)
            _take(fd, device, deadline=deadline, say=say)
            _held[device] = os.getpid()
            stack.callback(_held.pop, device, None)
        yield


def _take(fd: int, device: str, *, deadline: float, say: Callable[[str], None]) -> None:
    number = _draw_number(fd)
    say_next = 0.0
    while before := _locked(fd, _FIRST, number):
        if time.monotonic() > deadline:
            raise UserError(f"{device} was in use for hours, by {_holder(fd)}", "end that, or use another device")
        if time.monotonic() >= say_next:
            ahead = f", {before - 1} more before this one" if before > 1 else ""
            say(f"waiting for {device}, in use by {_holder(fd)}{ahead}")
            say_next = time.monotonic() + _SAY_S
        time.sleep(_POLL_S)
    # Who has it, for people; the lock itself is the kernel's.
    os.pwrite(fd, f"process {os.getpid()}".ljust(40).encode(), _HEADER.size)


def _leave(fd: int) -> None:
    """Unlocked, and not closed only: a child that was forked meanwhile has the same open file, and would keep the lock."""
    _ofd(fd, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, 0, 0)
    os.close(fd)


def _draw_number(fd: int) -> int:
    """The next in line, its byte locked before anybody can draw the one after it."""
    _ofd(fd, fcntl.F_OFD_SETLKW, fcntl.F_WRLCK, _GUARD, 1)
    try:
        raw = os.pread(fd, _HEADER.size, 0)
        number = _FIRST + (_HEADER.unpack(raw)[0] + 1 if len(raw) == _HEADER.size else 0) % _FIRST
        _ofd(fd, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, number, 1)
        os.pwrite(fd, _HEADER.pack(number - _FIRST), 0)
        return number
    finally:
        _ofd(fd, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, _GUARD, 1)


def _locked(fd: int, start: int, end: int) -> int:
    """How many of the numbers from `start` up to `end` others hold. The kernel names any one of them at a time."""
    if start >= end:
        return 0
    kind, _, at, length, _ = _ofd(fd, fcntl.F_OFD_GETLK, fcntl.F_WRLCK, start, end - start)
    if kind == fcntl.F_UNLCK:
        return 0
    return length + _locked(fd, start, at) + _locked(fd, at + length, end)


def _ofd(fd: int, command: int, kind: int, start: int, length: int) -> tuple[int, ...]:
    """Locks of an open file, not of a process: a forked child has none, and closing another descriptor loses none."""
    answer = fcntl.fcntl(fd, command, _LOCK.pack(kind, os.SEEK_SET, start, length, 0))
    return _LOCK.unpack(answer)


def _holder(fd: int) -> str:
    return os.pread(fd, 40, _HEADER.size).decode(errors="replace").strip() or "another process"


def _open(path: Path) -> int:
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(PermissionError):
            path.parent.chmod(0o1777)
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW  # a link here could have us write into a file of the user's
    try:
        # Without O_CREAT first: kernels forbid it for another user's file in such a folder.
        return os.open(path, flags)
    except FileNotFoundError:
        fd = os.open(path, flags | os.O_CREAT, 0o666)
        with contextlib.suppress(PermissionError):
            os.fchmod(fd, 0o666)  # whatever the umask: other users' evaluations wait for this one too
        return fd
    except OSError as error:
        raise UserError(f"cannot open {path}: {error.strerror}", "set PKB_LOCK_DIR to a folder of your own") from error
