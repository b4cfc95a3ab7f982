"""Messages between the judge and one rank, with file descriptors attached, over a Unix packet socket.

JSON and raw bytes only. The judge never unpickles anything that a candidate's process has sent, and treats every message as
a claim: nothing in it can say what is right. What a message may be, and how long, is `pkb.types.protocol`'s.
"""

import contextlib
import fcntl
import os
import select
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from pkb.types.protocol.codec import Malformed, decode, encode

INLINE_BYTES = 32 * 1024
MAX_FDS = 8
KERNEL_MAX_FDS = 253
"""In one packet. What there is no room for the kernel closes, and would have the receiver wait for it."""
LONGEST_CLOSE_S = 0.5
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
KEPT_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | 0x10
"""With F_SEAL_FUTURE_WRITE, nameless in Python before 3.13: mappings that are there already can still be written to."""
_CREDENTIALS = struct.Struct("iII")
M = TypeVar("M")


class ChannelClosed(Exception):
    """The other end is gone."""


class BadMessage(Exception):
    """The other end sent something that is not a message, or not one that was to be expected."""


class Received(NamedTuple, Generic[M]):
    message: M
    fds: list[int]
    sender_pid: int | None
    """The sender's process id as this process's namespace sees it, vouched for by the kernel."""


def pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return ours, theirs


class Channel:
    """One end. A body too long for a packet travels in an anonymous file."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        _elsewhere(self.sock.close)

    def send(self, message: object, fds: Sequence[int] = (), *, timeout_s: float = 60.0) -> None:
        body = encode(message)
        spill = -1
        if len(body) > INLINE_BYTES:
            spill = os.memfd_create("pkb-message", os.MFD_CLOEXEC)
            _write_all(spill, body)
            body, fds = b"", [spill, *fds]
        head = b"F" if spill >= 0 else b"I"
        try:
            self.sock.settimeout(timeout_s)
            socket.send_fds(self.sock, [head + body], list(fds))
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosed(f"cannot send: {error}") from error
        finally:
            if spill >= 0:
                os.close(spill)

    def receive(
        self, limits: Mapping[type[M], int], *, timeout_s: float | None = None, awake_s: float = 0.0
    ) -> Received[M]:
        """One of these messages, each of at most so many bytes. `awake_s`: for so long this core is kept at work, since one
        that sleeps may take milliseconds to wake up."""
        if awake_s:
            self._wait_awake(awake_s)
        self.sock.settimeout(timeout_s)
        space = socket.CMSG_SPACE(KERNEL_MAX_FDS * 4) + socket.CMSG_SPACE(_CREDENTIALS.size)
        try:
            data, ancillary, flags, _ = self.sock.recvmsg(INLINE_BYTES + 1, space, socket.MSG_CMSG_CLOEXEC)
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        fds, pid = _ancillary(ancillary)
        if not data:
            discard(fds)  # an empty packet may carry some
            raise ChannelClosed("closed by the other end")
        try:
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                raise BadMessage("truncated packet")
            if len(fds) > MAX_FDS:
                raise BadMessage(f"{len(fds)} descriptors in a packet")
            body = _spilled(fds, max(limits.values())) if data[:1] == b"F" else data[1:]
            message = decode(body, limits)
            if len(body) > limits[type(message)]:
                raise BadMessage(
                    f"{len(body)} bytes for a {type(message).__name__}, {limits[type(message)]} are allowed"
                )
        except (BadMessage, Malformed, OSError) as error:
            discard(fds)
            raise BadMessage(str(error)) from error
        return Received(message, fds, pid)

    def _wait_awake(self, seconds: float) -> None:
        waiting, give_up = select.poll(), time.monotonic() + seconds
        waiting.register(self.sock, select.POLLIN)
        while not waiting.poll(0) and time.monotonic() < give_up:
            pass


def discard(fds: Iterable[int]) -> None:
    """Close descriptors that the other end chose, without waiting for it."""
    for fd in fds:
        if is_memory_file(fd):
            os.close(fd)
        else:
            _elsewhere(partial(_close, fd))


def _close(fd: int) -> None:
    with contextlib.suppress(OSError):
        os.close(fd)


def _elsewhere(close: Callable[[], object]) -> None:
    """Closing a socket, or one through which others are on their way, may wait for unsent data as long as their owner has told
    the kernel to. So a thread does it, and is left to it if it has not ended soon."""
    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(LONGEST_CLOSE_S)


def is_memory_file(fd: int) -> bool:
    """An anonymous file, or one of a file system in memory: reading it waits for nobody."""
    return _seals(fd) is not None


def is_sealed(fd: int, *, kept: bool = False) -> bool:
    """A file in memory that nobody can change, shorten or lengthen any more: who maps it gets what was sent. `kept`: or that
    only its maker can change."""
    seals = _seals(fd) or 0
    return seals & SEALS == SEALS or (kept and seals & KEPT_SEALS == KEPT_SEALS)


def _seals(fd: int) -> int | None:
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        return seals if stat.S_ISREG(os.fstat(fd).st_mode) else None
    except OSError:
        return None


def _ancillary(items: Any) -> tuple[list[int], int | None]:
    fds: list[int] = []
    pid = None
    for level, kind, data in items:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_RIGHTS:
            count = len(data) // 4
            fds.extend(struct.unpack(f"{count}i", data[: count * 4]))
        elif kind == socket.SCM_CREDENTIALS:
            pid = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0]
    return fds, pid


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _spilled(fds: list[int], most: int) -> bytes:
    """The body of a message that is too long for a packet."""
    if not fds:
        raise BadMessage("a long message without its body")
    spill = fds.pop(0)
    try:
        if not is_memory_file(spill):
            raise BadMessage("a body that is no file in memory")
        return _read_all(spill, most)
    finally:
        discard([spill])


def _read_all(fd: int, most: int) -> bytes:
    """Read, not mapped: a sender that truncates the file afterwards cannot make the reader fault."""
    size = os.fstat(fd).st_size
    if size > most:
        raise BadMessage(f"a body of {size} bytes, {most} are allowed")
    chunks = []
    offset = 0
    while offset < size:
        chunk = os.pread(fd, min(1 << 20, size - offset), offset)
        if not chunk:
            raise BadMessage("a body shorter than its file")
        chunks.append(chunk)
        offset += len(chunk)
    return b"".join(chunks)
