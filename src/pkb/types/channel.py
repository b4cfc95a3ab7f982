"""Messages between the judge and one rank: JSON with file descriptors attached, over a Unix packet socket.

JSON and raw bytes only. The judge never unpickles anything that a candidate's process has sent, and treats every message as
a claim: nothing in it can say what is right.
"""

import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

INLINE_BYTES = 32 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_FDS = 8
_CREDENTIALS = struct.Struct("iII")


class ChannelClosed(Exception):
    """The other end is gone."""


class BadMessage(Exception):
    """The other end sent something that is not a message."""


class Received(NamedTuple):
    message: dict[str, Any]
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
        self.sock.close()

    def send(self, message: dict[str, Any], fds: Sequence[int] = (), *, timeout_s: float = 60.0) -> None:
        body = json.dumps(message).encode()
        spill = -1
        if len(body) > INLINE_BYTES:
            spill = os.memfd_create("pkb-message", os.MFD_CLOEXEC)
            _write_all(spill, body)
            body, fds = b"", [spill, *fds]
        head = b"F" if spill >= 0 else b"I"
        self.sock.settimeout(timeout_s)
        try:
            socket.send_fds(self.sock, [head + body], list(fds))
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosed(f"cannot send: {error}") from error
        finally:
            if spill >= 0:
                os.close(spill)

    def receive(self, *, timeout_s: float | None = None) -> Received:
        self.sock.settimeout(timeout_s)
        space = socket.CMSG_SPACE(MAX_FDS * 4) + socket.CMSG_SPACE(_CREDENTIALS.size)
        try:
            data, ancillary, flags, _ = self.sock.recvmsg(INLINE_BYTES + 1, space)
        except (ConnectionResetError, BrokenPipeError) as error:
            raise ChannelClosed(str(error)) from error
        fds, pid = _ancillary(ancillary)
        if not data:
            _close(fds)  # an empty packet may carry some
            raise ChannelClosed("closed by the other end")
        try:
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                raise BadMessage("truncated packet")
            body = data[1:]
            if data[:1] == b"F":
                if not fds:
                    raise BadMessage("a long message without its body")
                spill = fds.pop(0)
                try:
                    body = _read_all(spill)
                finally:
                    os.close(spill)
            message = json.loads(body)
            if not isinstance(message, dict):
                raise BadMessage("not an object")
        except (BadMessage, ValueError, RecursionError, OSError) as error:
            _close(fds)
            raise BadMessage(str(error)) from error
        return Received(message, fds, pid)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


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


def _read_all(fd: int) -> bytes:
    """Read, not mapped: a sender that truncates the file afterwards cannot make the reader fault."""
    size = os.fstat(fd).st_size
    if size > MAX_BODY_BYTES:
        raise BadMessage(f"a body of {size} bytes")
    chunks = []
    offset = 0
    while offset < size:
        chunk = os.pread(fd, min(1 << 20, size - offset), offset)
        if not chunk:
            raise BadMessage("a body shorter than its file")
        chunks.append(chunk)
        offset += len(chunk)
    return b"".join(chunks)
