"""The analyser of races against logs that nobody would write: it ends, says something, and never more than it may."""

import os
import random
import re
import resource
import struct
import subprocess
from functools import partial
from typing import Any

import pytest

from pkb.kit.emulated.analyse import EVENTS, analyse
from pkb.kit.emulated.gxx import find_gxx

pytestmark = pytest.mark.skipif(isinstance(find_gxx(), str), reason=str(find_gxx()))
MAGIC, HEAD = 0x31474F4C424B50, 4096
KINDS = re.findall(r"\bR_[A-Z_]+", EVENTS.read_text().split("enum RecordKind")[1].split("};")[0])
MORE = {
    "R_STRONG_READ": 1, "R_STRONG_WRITE": 1, "R_STRONG_UPDATE": 1, "R_COPY": 1, "R_ENQUEUE": 1, "R_EVENT_RECORD": 1,
    "R_EVENT_WAIT": 1, "R_SIGNAL": 1, "R_WAIT": 1, "R_MEMORY": 1, "R_HOST_OPERATION": 1, "R_BARRIER_SOME": 8,
}  # fmt: skip
EVENTS_EACH = 400


def log_of(records: bytes, *, used: int | None = None, magic: int = MAGIC, rank: int = 0) -> int:
    descriptor = os.memfd_create("log")
    head = struct.pack(
        "<QIIQIIQQQ", magic, rank, 2, len(records) if used is None else used, 0, 0, 1 << 30, 1 << 31, 1 << 18
    )
    os.pwrite(descriptor, head.ljust(HEAD, b"\0") + records, 0)
    return descriptor


def sensible(random_: random.Random) -> bytes:
    """A log whose records are all well-formed and mean nothing."""
    out = bytearray()
    for number in range(EVENTS_EACH):
        name = random_.choice(KINDS[1:-1])
        address = random_.choice(
            (random_.randrange(8), (1 << 30) + random_.randrange(600), random_.randrange(1 << 46), ~0 % 2**64)
        )
        size = random_.choice((1, 2, 4, 8, 16, 3000)) if name != "R_SITE" else random_.randrange(3)
        mode = random_.randrange(6) | random_.randrange(5) << 3 | random_.randrange(3) << 6
        more = size if name == "R_SITE" else MORE.get(name, 0)
        out += struct.pack("<BBHIQ", KINDS.index(name), mode, size, random_.randrange(40), address)
        out += b"".join(
            struct.pack("<QQ", random_.choice((number, random_.randrange(2**64))), random_.randrange(64))
            for _ in range(more)
        )
    return bytes(out)


def changed(random_: random.Random, records: bytes) -> bytes:
    data = bytearray(records)
    for _ in range(random_.randrange(1, 40)):
        data[random_.randrange(len(data))] = random_.randrange(256)
    return bytes(data[: random_.randrange(1, len(data) // 16) * 16])


def report_of(logs: list[int], *, most_bytes: int = 1 << 30) -> dict[str, Any]:
    """An analyser that dies, or needs more memory or time than it may have, raises."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    try:
        return analyse(logs, run=partial(subprocess.run, preexec_fn=limit))
    finally:
        for descriptor in logs:
            os.close(descriptor)


def held_to_bounds(report: dict[str, Any]) -> None:
    assert set(report) - {"reason", "calls"} == {"events", "threads", "truncated", "broken", "findings", "timeline"}
    assert len(report["findings"]) <= 20
    assert len(report["timeline"]) <= 40
    for finding in report["findings"]:
        assert set(finding) == {"kind", "count", "memory", "offset", "bytes", "first", "second", "missing"}


@pytest.mark.parametrize("seed", range(6))
def test_any_log_gets_an_answer(seed: int) -> None:
    """Six logs a seed, of two ranks each: well-formed, mutated, and noise."""
    random_ = random.Random(seed)
    for way in range(6):
        texts = [sensible(random_) for _ in range(2)]
        if way % 3 == 1:
            texts = [changed(random_, text) for text in texts]
        elif way % 3 == 2:
            texts = [random_.randbytes(16 * random_.randrange(1, 500)) for _ in texts]
        held_to_bounds(report_of([log_of(text, rank=rank) for rank, text in enumerate(texts)]))


@pytest.mark.parametrize(
    "log",
    [{"records": b""}, {"records": b"\0" * 16}, {"records": b"", "used": 1 << 40}, {"records": b"", "magic": 1}],
    ids=["nothing", "a record of no kind", "longer than its file", "not a log"],
)
def test_what_is_not_a_log_is_said_to_be_broken(log: dict[str, Any]) -> None:
    report = report_of([log_of(**log)])
    held_to_bounds(report)
    assert report["broken"] == (log != {"records": b""})


def test_a_log_that_asks_for_more_memory_than_allowed_is_broken() -> None:
    """Writes all over the address space, each to a page of its own."""
    writes = b"".join(struct.pack("<BBHIQ", KINDS.index("R_WRITE"), 0, 8, 1, n << 20) for n in range(60000))
    report = report_of([log_of(writes)], most_bytes=200 << 20)
    assert report["broken"]
    assert "memory" in report["reason"]
