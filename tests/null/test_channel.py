"""The channel: what is sent arrives, what is no message is refused, and refusing costs the judge nothing."""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkb.types.channel import (
    INLINE_BYTES,
    MAX_FDS,
    BadMessage,
    Channel,
    ChannelClosed,
    Received,
    discard,
    is_memory_file,
    pair,
)
from pkb.types.protocol.codec import AtMost

Ends = tuple[Channel, Channel]
MAX_BODY_BYTES = 6 << 20


@dataclass(frozen=True)
class Note:
    text: Annotated[str, AtMost(8 << 20)]
    number: int = 0


@dataclass(frozen=True)
class Short:
    text: Annotated[str, AtMost(1000)]


def receive(channel: Channel, *, timeout_s: float = 5, awake_s: float = 0.0) -> Received[Note]:
    return channel.receive({Note: MAX_BODY_BYTES}, timeout_s=timeout_s, awake_s=awake_s)


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The judge's end and the rank's."""
    ours, theirs = (Channel(sock) for sock in pair())
    yield ours, theirs
    ours.close()
    theirs.close()


def open_fds() -> set[str]:
    """By target too, so that one closed and another opened is seen. The listing's own descriptor is left out."""
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            found.add(f"{name} {Path('/proc/self/fd', name).readlink()}")
        except OSError:
            continue
    return {entry for entry in found if "/proc/" not in entry}


def file_with(data: bytes) -> int:
    fd = os.memfd_create("test")
    os.write(fd, data)
    return fd


@given(st.builds(Note, st.text(max_size=200), st.integers(-(2**63), 2**63)))
@settings(max_examples=60, deadline=None)
def test_messages_arrive_as_they_were_sent(message: Note) -> None:
    ours, theirs = (Channel(sock) for sock in pair())
    theirs.send(message)
    assert receive(ours).message == message
    ours.send(message)
    assert receive(theirs).message == message
    ours.close()
    theirs.close()


@pytest.mark.parametrize("length", [INLINE_BYTES - 20, INLINE_BYTES - 12, INLINE_BYTES, INLINE_BYTES + 1, 5 << 20])
def test_long_bodies_arrive_whole(ends: Ends, length: int) -> None:
    """Around the length at which a packet becomes a file, and far above it."""
    ours, theirs = ends
    before = open_fds()
    theirs.send(Note("x" * length + "end"))
    got = receive(ours)
    assert got.message == Note("x" * length + "end")
    assert got.fds == []
    assert open_fds() == before, "the file that carried the body stays open"


@pytest.mark.parametrize("length", [1, 2 * INLINE_BYTES])
def test_descriptors_travel_beside_short_and_long_bodies(ends: Ends, length: int) -> None:
    ours, theirs = ends
    sent = [file_with(f"file {i}".encode()) for i in range(MAX_FDS - 1)]
    theirs.send(Note("x" * length), sent)
    got = receive(ours)
    assert [os.pread(fd, 100, 0) for fd in got.fds] == [f"file {i}".encode() for i in range(MAX_FDS - 1)]
    for fd in (*sent, *got.fds):
        os.close(fd)


def test_the_kernel_names_the_sender(ends: Ends) -> None:
    """Not the message: a rank that writes another's id into it changes nothing."""
    ours, theirs = ends
    child = os.fork()
    if child == 0:
        theirs.send(Note("pid", 1))
        os._exit(0)
    got = receive(ours)
    os.waitpid(child, 0)
    assert got.sender_pid == child


def test_packets_keep_their_bounds_and_order(ends: Ends) -> None:
    ours, theirs = ends
    for number in range(50):
        theirs.send(Note("", number))
    assert [receive(ours).message.number for _ in range(50)] == list(range(50))


@pytest.mark.parametrize("awake_s", [0.0, 0.02])
def test_a_closed_end_is_told_apart_from_silence(ends: Ends, awake_s: float) -> None:
    ours, theirs = ends
    with pytest.raises(TimeoutError):
        receive(ours, timeout_s=0.05, awake_s=awake_s)
    theirs.send(Note("last"))
    theirs.close()
    assert receive(ours, awake_s=awake_s).message == Note("last"), "what was sent before the end is still read"
    with pytest.raises(ChannelClosed):
        receive(ours, awake_s=awake_s)
    with pytest.raises(ChannelClosed):
        ours.send(Note("anybody there"))


def test_who_stays_awake_sees_a_message_that_comes_meanwhile(ends: Ends) -> None:
    ours, theirs = ends
    later = threading.Timer(0.02, theirs.send, [Note("late")])
    later.start()
    assert receive(ours, timeout_s=0, awake_s=60).message == Note("late"), "a socket that is not waited for any more"
    later.join()


GARBAGE = {
    "not JSON": b"Ihello",
    "nothing but the head": b"I",
    "no object": b"I[1, 2]",
    "a number": b"I17",
    "not text": b"I\xff\xfe\x00{}",
    "half an object": b'I{"reply": "do',
    "too long for a packet": b"I" + b" " * (INLINE_BYTES + 1),
    "deep": b"I" + b"[" * 30_000,
    "deep object": b"I" + b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "a number of 10,000 digits": b'I{"a": ' + b"9" * 10_000 + b"}",
    "a long message without its body": b"F",
}


def test_what_was_closed_here_sends_no_more(ends: Ends) -> None:
    """A side that was ended is asked once more by whoever looks for a culprit."""
    near, _ = ends
    near.sock.close()
    with pytest.raises(ChannelClosed):
        near.send(Note("a"), timeout_s=1)


@pytest.mark.parametrize("packet", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_refused_and_costs_no_descriptor(ends: Ends, packet: bytes) -> None:
    """Everything else would be an exception that the judge does not expect, which is a traceback for the user."""
    ours, theirs = ends
    carried = [] if packet == b"F" else [file_with(b"x"), file_with(b"y")]
    before = open_fds()
    theirs.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    socket.send_fds(theirs.sock, [packet], carried)
    with pytest.raises(BadMessage):
        receive(ours)
    assert open_fds() == before
    theirs.send(Note("works"))
    assert receive(ours).message == Note("works")
    for fd in carried:
        os.close(fd)


@given(st.binary(min_size=1, max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_packet_is_a_message_or_refused(packet: bytes) -> None:
    ours, theirs = (Channel(sock) for sock in pair())
    theirs.sock.send(packet)
    try:
        assert isinstance(receive(ours).message, Note)
    except BadMessage:
        pass
    finally:
        ours.close()
        theirs.close()


def send_body(theirs: Channel, fd: int) -> None:
    socket.send_fds(theirs.sock, [b"F"], [fd])


def test_a_body_beyond_the_limit_is_refused_unread(ends: Ends) -> None:
    """A sparse file is as long as its owner says and costs him nothing; reading it would cost us."""
    ours, theirs = ends
    fd = os.memfd_create("huge")
    os.truncate(fd, 1 << 44)
    before = open_fds()
    send_body(theirs, fd)
    with pytest.raises(BadMessage, match="body"):
        receive(ours)
    assert open_fds() == before
    os.truncate(fd, MAX_BODY_BYTES + 1)
    send_body(theirs, fd)
    with pytest.raises(BadMessage, match="body"):
        receive(ours)
    os.close(fd)


@pytest.mark.parametrize("body", [b"", b"[1]", b"\0" * 4096, b"[" * 200_000, b"{" * 100_000])
def test_a_file_that_is_no_message_is_refused(ends: Ends, body: bytes) -> None:
    ours, theirs = ends
    fd = file_with(body)
    send_body(theirs, fd)
    with pytest.raises(BadMessage):
        receive(ours)
    os.close(fd)


def test_a_pipe_for_a_body_does_not_block(ends: Ends) -> None:
    ours, theirs = ends
    read_end, write_end = os.pipe()
    send_body(theirs, read_end)
    with pytest.raises(BadMessage):
        receive(ours)
    os.close(read_end)
    os.close(write_end)


@pytest.mark.parametrize("kind", ["write-only", "folder"])
def test_a_body_that_cannot_be_read_is_refused(ends: Ends, tmp_path: Path, kind: str) -> None:
    """A rank chooses the descriptor; the error that reading it gives is the rank's, not a bug of the judge's."""
    ours, theirs = ends
    (tmp_path / "file").write_text("{}")
    path, flags = (tmp_path / "file", os.O_WRONLY) if kind == "write-only" else (tmp_path, os.O_RDONLY)
    fd = os.open(path, flags)
    send_body(theirs, fd)
    os.close(fd)
    with pytest.raises(BadMessage):
        receive(ours)


def test_more_descriptors_than_allowed_are_refused_and_closed(ends: Ends) -> None:
    ours, theirs = ends
    sent = [file_with(b"x") for _ in range(MAX_FDS + 20)]
    before = open_fds()
    socket.send_fds(theirs.sock, [b'I{"is": "Note", "text": "", "number": 1}'], sent)
    with pytest.raises(BadMessage):
        receive(ours)
    assert open_fds() == before
    for fd in sent:
        os.close(fd)


def test_an_empty_packet_leaves_no_descriptor(ends: Ends) -> None:
    """Each could be a file of gigabytes in memory, which lives as long as the judge holds it open."""
    ours, theirs = ends
    sent = [file_with(b"x") for _ in range(3)]
    before = open_fds()
    socket.send_fds(theirs.sock, [b""], sent)
    with pytest.raises((ChannelClosed, BadMessage)):
        receive(ours)
    left = open_fds() - before
    for entry in left:
        os.close(int(entry.split()[0]))
    for fd in sent:
        os.close(fd)
    assert not left


def test_a_reader_that_does_not_read_is_a_timeout(ends: Ends) -> None:
    """`Crew.tell` asks for TimeoutError, to say that a rank does not take messages."""
    ours, _ = ends

    def send_on() -> None:
        while True:
            ours.send(Note("x" * 20_000), timeout_s=0.1)

    with pytest.raises(TimeoutError):
        send_on()


def test_a_number_that_is_none_is_refused(ends: Ends) -> None:
    """Python's JSON reads NaN where nobody forbids it."""
    ours, theirs = ends
    for number in (b"NaN", b"Infinity", b"-Infinity", b"1e999"):
        theirs.sock.send(b'I{"is": "Note", "text": "", "number": ' + number + b"}")
        with pytest.raises(BadMessage):
            receive(ours)


def test_each_kind_of_message_has_a_size_of_its_own(ends: Ends) -> None:
    ours, theirs = ends
    limits: dict[type[Note | Short], int] = {Note: 4096, Short: 256}
    theirs.send(Note("x" * 3000))
    assert isinstance(ours.receive(limits, timeout_s=5).message, Note)
    theirs.send(Short("x" * 300))
    with pytest.raises(BadMessage, match="for a Short, 256 are allowed"):
        ours.receive(limits, timeout_s=5)
    theirs.send(Note("x" * 40_000))
    with pytest.raises(BadMessage, match="a body of"):
        ours.receive(limits, timeout_s=5)


def test_a_body_on_a_file_system_that_may_stall_is_not_read(ends: Ends, tmp_path: Path) -> None:
    """Files in memory only: who reads from another waits for whoever serves it."""
    ours, theirs = ends
    path = Path(__file__)  # on a disk, with luck; a test folder may be in memory
    with path.open("rb") as file:
        if is_memory_file(file.fileno()):
            pytest.skip("the checkout is in memory")
        send_body(theirs, file.fileno())
        with pytest.raises(BadMessage, match="no file in memory"):
            receive(ours)


def lingering_socket(server: socket.socket) -> int:
    """A TCP socket with unsent data and SO_LINGER: who closes it last waits, here for a minute."""
    client = socket.create_connection(server.getsockname())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:  # nobody accepts and reads
            client.send(b"x" * 65536)
    client.setblocking(True)
    return client.detach()


def in_a_socket(fd: int) -> int:
    """A socket through which the other is on its way: it is closed with the last end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    socket.send_fds(theirs, [b"x"], [fd])
    os.close(fd)
    theirs.close()
    return ours.detach()


def ends_in_time(step: Callable[[], object]) -> bool:
    closing = threading.Thread(target=step, daemon=True)
    closing.start()
    closing.join(timeout=20)
    return not closing.is_alive()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_closing_what_was_sent_waits_for_nobody(server: socket.socket) -> None:
    for chosen in (lingering_socket(server), in_a_socket(lingering_socket(server))):
        assert ends_in_time(partial(discard, [chosen]))


def test_more_descriptors_than_are_read_wait_for_nobody(ends: Ends, server: socket.socket) -> None:
    """What the kernel has no room to hand over it closes itself, in the receiver's time."""
    ours, theirs = ends
    sent = [*(file_with(b"x") for _ in range(MAX_FDS)), lingering_socket(server)]
    socket.send_fds(theirs.sock, [b"I{}"], sent)
    for fd in sent[:-1]:
        os.close(fd)
    os.close(sent[-1])  # not the last: the packet holds it

    def refused() -> None:
        with pytest.raises(BadMessage):
            receive(ours)

    assert ends_in_time(refused)


def test_closing_a_channel_waits_for_nothing_that_is_on_its_way(server: socket.socket) -> None:
    ours, theirs = (Channel(sock) for sock in pair())
    sent = lingering_socket(server)
    socket.send_fds(theirs.sock, [b"I{}"], [sent])
    os.close(sent)
    theirs.close()
    assert ends_in_time(ours.close)
