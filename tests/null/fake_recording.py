"""Ranks that record whatever they are told to, and an analyser that prints what it is given."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from race_examples import CANDIDATE, printed

from pkb.candidates.source import read
from pkb.candidates.source_lines import SourceLines
from pkb.judge.crew.failure import CrewFailure
from pkb.judge.exchange import Exchange
from pkb.judge.stages.race_proof import Recorder, Trace
from pkb.types.protocol.commands import DrawSpec, Schedule
from pkb.types.protocol.replies import RecordingReply

CLEAN = printed(findings=[], timeline=[])


class FakeCrew:
    """Ranks that record whatever they are told to."""

    def __init__(self, why_not: str, unknown_looks: bool) -> None:
        self.spec, self.ranks, self.why_not = SimpleNamespace(world_size=2), range(2), why_not
        self.unknown_looks = unknown_looks
        self.told: list[tuple[int, int]] = []

    def tell(self, rank: int, command: Any, fds: Sequence[int]) -> None:
        self.told.append((rank, command.seed))
        assert len(fds) == 2

    def hear(self, command: object, *, timeout_s: float) -> dict[int, RecordingReply]:
        return {0: RecordingReply(), 1: RecordingReply(self.why_not)}

    def ask(self, command: object, *, timeout_s: float) -> dict[int, RecordingReply]:
        return {0: RecordingReply(), 1: RecordingReply(unknown_looks=self.unknown_looks)}


class FakeExchange:
    def __init__(self, why_not: str, unknown_looks: bool) -> None:
        self.candidate = FakeCrew(why_not, unknown_looks)
        self.late: list[Any] = []
        self.alike: list[bool] = []
        self.sizes: list[tuple[str, ...]] = []
        self.calls = 0
        self.fails: Mapping[int, CrewFailure] = {}
        """By batch."""

    def deliver(self, spec: DrawSpec, count: int, *, kinds: Sequence[str], sizes: Sequence[str]) -> tuple[int, ...]:
        self.sizes.append(tuple(sizes))
        assert not spec.as_published  # its values are for that plan alone
        assert tuple(kinds) == (("",) * count if spec.even else ())
        self.alike.append(spec.even)
        return tuple(range(count))

    def run_candidate(self, schedule: Schedule, *, late: Any, extra_s: float) -> None:
        self.late.append(late and list(late))
        if failure := self.fails.get(len(self.late) - 1):
            raise failure

    def drop(self) -> None: ...

    def drop_drawn(self) -> None: ...


def recorder_of(
    folder: Path, exchange: FakeExchange, *documents: bytes | Exception, more: str = "", **options: Any
) -> Recorder:
    """The analyser prints these documents in turn."""
    path = folder / "candidate.py"
    path.write_text(CANDIDATE + more)
    said = iter(documents)

    def analyse(trace: Trace) -> bytes:
        assert len(trace.logs) == 2
        document = next(said)
        if isinstance(document, Exception):
            raise document
        return document

    return Recorder(
        cast(Exchange, exchange),
        DrawSpec("1", "tiny", "fp32"),
        SourceLines(read(path)),
        analyse,
        lambda text: None,
        **options,
    )
