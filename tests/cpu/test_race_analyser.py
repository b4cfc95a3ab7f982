"""The analyser of recorded calls, behind its walls: whatever lies in a log, the judge gets a report or a reason."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from pkb.judge.stages import race_analyser
from pkb.judge.stages.race_analyser import analyse
from pkb.judge.stages.race_proof import AnalyserFailed, Trace
from pkb.judge.stages.race_proof import trace_files as files
from pkb.kit.emulated.analyse import LOG_BYTES
from pkb.kit.emulated.gxx import find_gxx
from pkb.types.protocol.codec import Malformed
from pkb.types.race import read_analysis

pytestmark = pytest.mark.skipif(isinstance(find_gxx(), str), reason=str(find_gxx()))
MAGIC = 0x31474F4C424B50


@pytest.fixture
def trace() -> Iterator[Trace]:
    with files(1, 2) as made:
        yield made


def head(rank: int, used: int, *, world: int = 2) -> bytes:
    words = [
        MAGIC.to_bytes(8, "little"),
        rank.to_bytes(4, "little"),
        world.to_bytes(4, "little"),
        used.to_bytes(8, "little"),
    ]
    return b"".join(words).ljust(4096, b"\0")


def test_hostile_logs_end_in_a_report_that_accuses_nobody_or_a_reason(trace: Trace) -> None:
    """Nothing, noise, lengths that lie, and records of random kinds."""
    dice = random.Random(3)
    noise = dice.randbytes(16 * 4000)
    bodies = [b"", b"\xff" * 5000, head(0, 1 << 62), head(0, 15) + b"x" * 15, head(0, len(noise)) + noise]
    bodies += [
        head(0, 16 * 300) + bytes(dice.randrange(32) if n % 16 == 0 else dice.randrange(256) for n in range(16 * 300))
    ]
    for body in bodies:
        for log in trace.logs:
            os.pwrite(log, body, 0)
        try:
            found = read_analysis(analyse(trace))
        except (AnalyserFailed, Malformed):
            continue
        assert found.why_not or not found.findings, body[:32]


def test_a_log_cannot_be_cut_short_under_its_reader(trace: Trace) -> None:
    with pytest.raises(PermissionError):
        os.truncate(trace.logs[0], 0)
    assert os.fstat(trace.logs[0]).st_size == LOG_BYTES


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("kill -9 $$", "status"),
        ("exit 3", "status 3"),
        ("cat /etc/passwd", None),
        ("head -c 90000000 /dev/zero", "MiB are allowed"),
    ],
)
def test_a_program_that_a_log_has_taken_over_gets_no_further(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, says: str | None
) -> None:
    script = tmp_path / "analyser"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o755)
    monkeypatch.setattr(race_analyser, "_program", lambda: script)
    if says is None:
        with pytest.raises((AnalyserFailed, Malformed)):
            read_analysis(analyse(trace))
        return
    with pytest.raises(AnalyserFailed, match=says):
        analyse(trace)


def test_one_that_never_ends_is_ended(trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "analyser"
    script.write_text("#!/bin/sh\nsleep 300\n")
    script.chmod(0o755)
    monkeypatch.setattr(race_analyser, "_program", lambda: script)
    monkeypatch.setattr(race_analyser, "TIME_LIMIT_S", 1.0)
    with pytest.raises(AnalyserFailed, match="takes more than 1 s"):
        analyse(trace)
