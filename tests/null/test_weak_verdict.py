"""Weak execution in a verdict: what was wrong is told with the race that is proven, and alone accuses nobody."""

import io
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jsonschema
from race_examples import CANDIDATE, proof
from rich.console import Console
from verdict_examples import example

from pkb.candidates.source import read
from pkb.candidates.source_lines import SourceLines
from pkb.cli.panel import render
from pkb.generate.feedback import feedback
from pkb.judge.crew.failure import CrewFailure, CrewFailureKind
from pkb.judge.exchange import Exchange, Outcome
from pkb.judge.stages.race_proof import Proved, Recorder, proven_race
from pkb.judge.stages.weak_execution import BROKEN_AT, LOG_BYTES, run_weakly
from pkb.types.document_versions import read_evaluation
from pkb.types.protocol.commands import BeginRecording, DrawSpec
from pkb.types.protocol.replies import RecordingReply
from pkb.types.race import RaceKind, WeakExecution
from pkb.types.race_words import report_lines
from pkb.types.verdict import Verdict

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "verdict.schema.json").read_text())
WRONG = Outcome(mismatch=example(Verdict.WRONG).mismatch)


class Ranks:
    """Two that run weakly what they are told to, and give these outcomes."""

    def __init__(self, *outcomes: Outcome | Exception, breaks: bool = False) -> None:
        self.candidate, self.outcomes, self.breaks = self, list(outcomes), breaks
        self.spec, self.ranks = SimpleNamespace(world_size=2), range(2)
        self.told: list[BeginRecording] = []
        self.dropped = self.calls = 0

    def tell(self, rank: int, command: BeginRecording, fds: Sequence[int]) -> None:
        self.told.append(command)
        assert os.fstat(fds[1]).st_size == LOG_BYTES
        if self.breaks:
            os.pwrite(fds[1], b"\1", BROKEN_AT)

    def hear(self, command: object, *, timeout_s: float) -> dict[int, RecordingReply]:
        return {0: RecordingReply(), 1: RecordingReply()}

    ask = hear

    def deliver(
        self, spec: DrawSpec, count: int, *, kinds: tuple[str, ...] = (), sizes: tuple[str, ...] = ()
    ) -> tuple[int, ...]:
        return tuple(range(count))

    def run_candidate(self, schedule: object, *, late: object, extra_s: float) -> None:
        if isinstance(self.outcomes[0], Exception):
            raise self.outcomes[0]

    def check(self, slots: Sequence[int], *, words: str) -> Outcome:
        return cast(Outcome, self.outcomes.pop(0))

    def drop(self) -> None:
        self.dropped += 1


def weakly(folder: Path, ranks: Ranks, *, batches: int = 2, **changes: Any) -> Proved:
    path = folder / "candidate.py"
    path.write_text(CANDIDATE)
    recorder = Recorder(
        cast(Exchange, ranks),
        DrawSpec("1", "tiny", "fp32"),
        SourceLines(read(path)),
        lambda trace: b"",
        lambda text: None,
    )
    return run_weakly(recorder, proof(**changes), batches)


def test_right_results_are_counted(tmp_path: Path) -> None:
    ranks = Ranks(Outcome(), Outcome())
    found, ended, _ = weakly(tmp_path, ranks, findings=[], timeline=[])
    assert (found.weak, ended, ranks.dropped) == (WeakExecution(6), None, 2)
    assert found.weak_in_words == "weak execution: right in 6 calls"
    assert [(command.weak, command.seed) for command in ranks.told] == [
        (True, 64 * s + r) for s in (7, 8) for r in (0, 1)
    ]


def test_a_wrong_result_is_told_with_the_race_and_everywhere_it_is_shown(tmp_path: Path) -> None:
    found, ended, _ = weakly(tmp_path, Ranks(Outcome(), WRONG))
    assert ended is None
    assert found.weak is not None
    assert found.weak.calls == 6
    said = f"weak execution: {found.weak.wrong}"
    assert found.weak.wrong.startswith("the result of rank")
    decided = proven_race(found)
    assert decided.detail.endswith(f". In {said}")
    evaluation = example(
        Verdict.RACE, detail="", race_kind=RaceKind.RELAXED, race_proof=found, mismatch=None
    )  # fmt: skip
    out = io.StringIO()
    Console(file=out, width=200, highlight=False, markup=False).print(render(evaluation))
    assert said in out.getvalue()
    assert said in feedback(evaluation)
    assert said in report_lines(found)
    document = json.loads(evaluation.to_json())
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert read_evaluation(document) == evaluation
    del document["race_proof"]["weak"]  # as it was written before there was any
    older = read_evaluation(document)
    assert older.race_proof == replace(found, weak=None)


def test_a_wrong_result_without_a_race_does_not_count(tmp_path: Path) -> None:
    found, _, _ = weakly(tmp_path, Ranks(WRONG), findings=[], timeline=[])
    assert found.findings == ()
    assert found.weak_in_words.endswith("; no race is proven that explains it, so it does not count")


def test_what_does_not_end_well_says_nothing(tmp_path: Path) -> None:
    hang = CrewFailure(CrewFailureKind.TIMEOUT, [1], "rank 1 waits", role="candidate")
    found, ended, _ = weakly(tmp_path, Ranks(hang))
    assert ended == (hang, 0)
    assert found.weak is not None
    assert found.weak.wrong == ""
    assert found.weak.why_not.startswith("it did not end well: ")
    broken, ended, _ = weakly(tmp_path, Ranks(WRONG, breaks=True))
    assert (broken.weak, ended) == (WeakExecution(0, why_not="a log is broken"), None)
    assert proven_race(broken).detail == proven_race(proof()).detail
