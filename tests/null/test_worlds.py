"""Ranks that are started in the place of others, with sides that are made up: who is to blame if they do not start."""

import itertools
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pkb.judge import worlds
from pkb.judge.crew.failure import CrewFailure, CrewFailureKind
from pkb.judge.decision import Decided
from pkb.judge.stages import artifacts
from pkb.judge.worlds import World
from pkb.problems import get
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.protocol.commands import Load
from pkb.types.verdict import Stage, Verdict

NO_MEMORY = CrewFailure(CrewFailureKind.RAISED, [0], "out of memory", role="oracle")


class Side:
    """A crew whose ranks do as they are told, or fail to start."""

    def __init__(self, role: str, failures: list[CrewFailure | None]) -> None:
        self.role, self._failures = role, failures
        self.isolation: dict[str, str] = {}
        self.facts: dict[str, str] = {}
        self.start_seconds: dict[str, float] = {}
        self.memory_words, self.build_folder, self.warden_pid, self.patience = "", Path("none"), 1, None
        self.ended, self.asked = False, list[Any]()

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *error: object) -> None:
        self.ended = True

    def launch(self) -> None:
        return

    def await_ready(self, *, timeout_s: float = 0.0) -> None:
        if self._failures and (failure := self._failures.pop(0)):
            raise failure

    def ask(self, command: Any, *, timeout_s: float) -> None:
        """Before it has said that it stands, the answer to anything is that."""
        self.asked.append(command)
        if not isinstance(command, Load):
            raise CrewFailure(CrewFailureKind.GARBAGE, [0], "no answer to this", role=self.role)


class Started:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, oracle: list[CrewFailure | None]) -> None:
        self.sides: list[Side] = []
        self.slept: list[float] = []

        def side(role: str, failures: list[CrewFailure | None]) -> Side:
            self.sides.append(Side(role, failures))
            return self.sides[-1]

        monkeypatch.setattr(worlds, "oracle_crew", lambda *_: side("oracle", oracle))
        monkeypatch.setattr(worlds, "candidate_crew", lambda *_, **__: side("candidate", []))
        monkeypatch.setattr(worlds, "import_ahead", lambda platform: None)
        monkeypatch.setattr(artifacts, "keep_own_kernels", lambda folder: None)
        monkeypatch.setattr(
            worlds, "Exchange", lambda *_, **__: SimpleNamespace(copies=False, open=lambda command: None)
        )
        monkeypatch.setattr(time, "sleep", self.slept.append)
        job = Job(Path("candidate.py"), Case("1", "virtual", 2, "tiny", "bf16", "quick"))
        platform: Any = SimpleNamespace(device="cuda", facts=lambda: None)
        self.world = World(job, platform, get(1), ranks=2, build=Path("none"), backend="cuda")
        self.world.open()
        self.world.exchange.copies = True


def test_a_start_that_fails_once_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(monkeypatch, oracle=[None, NO_MEMORY, None])
    started.world.reopen()
    assert [side.ended for side in started.sides] == [True] * 4 + [False] * 2
    assert started.slept == [0.0, 1.0]
    assert started.world.exchange.copies, "what follows copies results as before"


def test_an_oracle_that_does_not_start_again_is_nobodys_malformed_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked whether it still works, a side that has not been heard yet answers that it stands."""
    started = Started(monkeypatch, oracle=[None, NO_MEMORY, NO_MEMORY, NO_MEMORY])
    with pytest.raises(Decided) as decided, started.world.blame(Stage.TIMING):
        started.world.reopen()
    assert decided.value.verdict is Verdict.HARNESS_ERROR
    assert started.slept == list(worlds.PAUSES_S)
    assert not any(side.asked for side in started.sides[2:] if side.role == "candidate")


def test_ranks_that_hang_while_they_start_are_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=100.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    started = Started(monkeypatch, oracle=[None, NO_MEMORY, None])
    with pytest.raises(Decided, match="did not start"):
        started.world.reopen()
    assert started.slept == [0.0]
