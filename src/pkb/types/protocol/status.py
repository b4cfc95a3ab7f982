"""What a rank was last seen doing: one line that the judge can read at any moment, even when the rank is stuck in a kernel.

A page of shared memory holds a line per rank. Its first byte says whether the rank waits for somebody else.
"""

from typing import NamedTuple, Protocol

STATUS_BYTES = 512
_WAITING, _RUNNING = b"w", b"r"


class RankStatus(NamedTuple):
    text: str
    waiting: bool


class OnStep(Protocol):
    def __call__(self, text: str, *, waiting: bool = False) -> None: ...


def encode_status(text: str, *, waiting: bool) -> bytes:
    line = (_WAITING if waiting else _RUNNING) + text.encode(errors="replace")
    return line[: STATUS_BYTES - 1].ljust(STATUS_BYTES, b"\0")


def decode_status(line: bytes) -> RankStatus:
    """Of a line that its rank may have written anything into."""
    text = line[1:].split(b"\0", 1)[0].decode(errors="replace")
    return RankStatus(text, waiting=line[:1] == _WAITING)
