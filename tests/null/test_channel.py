"""The channel: what is sent arrives, what is no message is refused, and refusing costs the judge nothing."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkb.types.channel import INLINE_BYTES, MAX_BODY_BYTES, MAX_FDS, BadMessage, Channel, ChannelClosed, pair

Ends = tuple[Channel, Channel]


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


json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=5))
@settings(max_examples=60, deadline=None)
def test_messages_arrive_as_they_were_sent(message: dict[str, Any]) -> None:
    ours, theirs = (Channel(sock) for sock in pair())
    theirs.send(message)
    assert ours.receive(timeout_s=5).message == message
    ours.send(message)
    assert theirs.receive(timeout_s=5).message == message
    ours.close()
    theirs.close()


@pytest.mark.parametrize("length", [INLINE_BYTES - 20, INLINE_BYTES - 12, INLINE_BYTES, INLINE_BYTES + 1, 5 << 20])
def test_long_bodies_arrive_whole(ends: Ends, length: int) -> None:
    """Around the length at which a packet becomes a file, and far above it."""
    ours, theirs = ends
    before = open_fds()
    theirs.send({"text": "x" * length + "end"})
    got = ours.receive(timeout_s=5)
    assert got.message == {"text": "x" * length + "end"}
    assert got.fds == []
    assert open_fds() == before, "the file that carried the body stays open"


@pytest.mark.parametrize("length", [1, 2 * INLINE_BYTES])
def test_descriptors_travel_beside_short_and_long_bodies(ends: Ends, length: int) -> None:
    ours, theirs = ends
    sent = [file_with(f"file {i}".encode()) for i in range(MAX_FDS - 1)]
    theirs.send({"text": "x" * length}, sent)
    got = ours.receive(timeout_s=5)
    assert [os.pread(fd, 100, 0) for fd in got.fds] == [f"file {i}".encode() for i in range(MAX_FDS - 1)]
    for fd in (*sent, *got.fds):
        os.close(fd)


def test_the_kernel_names_the_sender(ends: Ends) -> None:
    """Not the message: a rank that writes another's id into it changes nothing."""
    ours, theirs = ends
    child = os.fork()
    if child == 0:
        theirs.send({"pid": 1, "sender_pid": 1})
        os._exit(0)
    got = ours.receive(timeout_s=5)
    os.waitpid(child, 0)
    assert got.sender_pid == child


def test_packets_keep_their_bounds_and_order(ends: Ends) -> None:
    ours, theirs = ends
    for number in range(50):
        theirs.send({"n": number})
    assert [ours.receive(timeout_s=5).message["n"] for _ in range(50)] == list(range(50))


def test_a_closed_end_is_told_apart_from_silence(ends: Ends) -> None:
    ours, theirs = ends
    with pytest.raises(TimeoutError):
        ours.receive(timeout_s=0.05)
    theirs.send({"last": True})
    theirs.close()
    assert ours.receive(timeout_s=5).message == {"last": True}, "what was sent before the end is still read"
    with pytest.raises(ChannelClosed):
        ours.receive(timeout_s=5)
    with pytest.raises(ChannelClosed):
        ours.send({"anybody": "there"})


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


@pytest.mark.parametrize("packet", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_refused_and_costs_no_descriptor(ends: Ends, packet: bytes) -> None:
    """Everything else would be an exception that the judge does not expect, which is a traceback for the user."""
    ours, theirs = ends
    carried = [] if packet == b"F" else [file_with(b"x"), file_with(b"y")]
    before = open_fds()
    theirs.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    socket.send_fds(theirs.sock, [packet], carried)
    with pytest.raises(BadMessage):
        ours.receive(timeout_s=5)
    assert open_fds() == before
    theirs.send({"still": "works"})
    assert ours.receive(timeout_s=5).message == {"still": "works"}
    for fd in carried:
        os.close(fd)


@given(st.binary(min_size=1, max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_packet_is_a_message_or_refused(packet: bytes) -> None:
    ours, theirs = (Channel(sock) for sock in pair())
    theirs.sock.send(packet)
    try:
        assert isinstance(ours.receive(timeout_s=5).message, dict)
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
        ours.receive(timeout_s=5)
    assert open_fds() == before
    os.truncate(fd, MAX_BODY_BYTES + 1)
    send_body(theirs, fd)
    with pytest.raises(BadMessage, match="body"):
        ours.receive(timeout_s=5)
    os.close(fd)


@pytest.mark.parametrize("body", [b"", b"[1]", b"\0" * 4096, b"[" * 200_000, b"{" * 100_000])
def test_a_file_that_is_no_message_is_refused(ends: Ends, body: bytes) -> None:
    ours, theirs = ends
    fd = file_with(body)
    send_body(theirs, fd)
    with pytest.raises(BadMessage):
        ours.receive(timeout_s=5)
    os.close(fd)


def test_a_pipe_for_a_body_does_not_block(ends: Ends) -> None:
    ours, theirs = ends
    read_end, write_end = os.pipe()
    send_body(theirs, read_end)
    with pytest.raises(BadMessage):
        ours.receive(timeout_s=5)
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
        ours.receive(timeout_s=5)


def test_more_descriptors_than_allowed_are_refused_and_closed(ends: Ends) -> None:
    ours, theirs = ends
    sent = [file_with(b"x") for _ in range(MAX_FDS + 20)]
    before = open_fds()
    socket.send_fds(theirs.sock, [b'I{"a": 1}'], sent)
    with pytest.raises(BadMessage):
        ours.receive(timeout_s=5)
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
        ours.receive(timeout_s=5)
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
            ours.send({"text": "x" * 20_000}, timeout_s=0.1)

    with pytest.raises(TimeoutError):
        send_on()


def test_infinity_of_a_rank_is_only_a_claim(ends: Ends) -> None:
    """Python's JSON reads NaN: whoever uses a number from a message must bear it. Here so that the fact is known."""
    ours, theirs = ends
    theirs.sock.send(b'I{"n": NaN}')
    assert str(ours.receive(timeout_s=5).message["n"]) == "nan"
    with pytest.raises(ValueError, match="JSON compliant"):
        json.dumps(float("nan"), allow_nan=False)
