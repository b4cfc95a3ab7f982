"""One evaluation at a time on a device: a lock file for each, so that two of them do not disturb each other's times.

The kernel drops the lock when its holder dies, however it dies. Whoever runs ranks on a GPU takes it: judge, lint and probe.
The files lie in `PKB_LOCK_DIR`, or in a folder of /tmp that all users of the machine share.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pkb.types.errors import UserError
from pkb.types.file_lock import lock

LOCK_WAIT_S = 4 * 3600.0
"""How long an evaluation waits for its device while somebody else measures there."""
_POLL_S = 0.2
_SAY_S = 30.0
_held: dict[str, int] = {}
"""Devices and the process that holds them: a forked child must take them for itself."""


def lock_folder() -> Path:
    return Path(os.environ.get("PKB_LOCK_DIR") or "/tmp/pkb-device-locks")


def devices_of(platform: str, ranks: int) -> list[str]:
    """Names of the devices that such an evaluation measures on; none on a CPU, where cores are shared out instead."""
    from pkb.platforms.registry import create

    where = create(platform)
    if where.device == "cpu":
        return []
    return visible_devices()[: 1 if where.shares_device else ranks]


def visible_devices() -> list[str]:
    """The GPUs that this process may use, each by a name that does not depend on how it was asked for: its UUID."""
    known = _uuids()
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if asked is None:
        return known or ["gpu-0"]
    names = []
    for token in filter(None, (part.strip() for part in asked.split(","))):
        if token.isdigit():
            names.append(known[int(token)] if int(token) < len(known) else f"gpu-{token}")
        else:
            names.append(next((uuid for uuid in known if uuid.startswith(token)), token))
    return names


def _uuids() -> list[str]:
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    except pynvml.NVMLError:
        return []


@contextlib.contextmanager
def hold(
    devices: Sequence[str], *, wait_s: float = LOCK_WAIT_S, say: Callable[[str], None] = lambda text: None
) -> Iterator[None]:
    """All these devices for ourselves while the block runs; taken in one fixed order, so that no two wait for each other.
    What this process holds already, it does not wait for."""
    with contextlib.ExitStack() as stack:
        deadline = time.monotonic() + wait_s
        for device in sorted({device for device in devices if _held.get(device) != os.getpid()}):
            fd = _open(lock_folder() / f"{''.join(c if c.isalnum() or c in '-_.' else '_' for c in device)}.lock")
            stack.callback(os.close, fd)
            _take(fd, device, deadline=deadline, say=say)
            _held[device] = os.getpid()
            stack.callback(_held.pop, device, None)
        yield


def _take(fd: int, device: str, *, deadline: float, say: Callable[[str], None]) -> None:
    say_next = 0.0

    def tell() -> None:
        nonlocal say_next
        if time.monotonic() >= say_next:
            say(f"waiting for {device}, in use by {_holder(fd)}")
            say_next = time.monotonic() + _SAY_S

    try:
        lock(fd, wait_s=max(0.0, deadline - time.monotonic()), poll_s=_POLL_S, while_waiting=tell)
    except TimeoutError:
        raise UserError(f"{device} was in use for hours, by {_holder(fd)}", "end that, or use another device") from None
    # Who has it, for people; the lock itself is the kernel's.
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"process {os.getpid()}".encode(), 0)


def _holder(fd: int) -> str:
    return os.pread(fd, 100, 0).decode(errors="replace") or "another process"


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
