"""Who is beside the reference: looks at a device, before and after, and what is held against a candidate."""

import contextlib
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from pkb.judge.crew.company import LOOKS, DeviceAtWork, Disturbed, Watch, words_of
from pkb.judge.crew.crew import Crew
from pkb.judge.crew.failure import CrewFailure, CrewFailureKind
from pkb.types.protocol.commands import LookForCompany
from pkb.types.protocol.replies import Company

ALONE, CROWDED, IN_TURNS = Company(1.02, 3.0), Company(2.0, 4.0), Company(1.1, 1800.0)


class Oracle:
    """One rank that sees what it is told to see."""

    platform = SimpleNamespace(device="cuda")

    def __init__(self, *looks: Company) -> None:
        self.looks = list(looks)

    def ask(self, command: LookForCompany, *, timeout_s: float) -> dict[int, Company]:
        return {0: self.looks.pop(0)}


class Candidate:
    killed = False

    def __init__(self, warden_pid: int) -> None:
        self.warden_pid = warden_pid

    def kill(self) -> None:
        self.killed = True


@contextlib.contextmanager
def watch(*looks: Company) -> Iterator[tuple[Watch, Oracle, Candidate]]:
    oracle = Oracle(*looks)
    with subprocess.Popen(["sleep", "60"]) as process:
        candidate = Candidate(process.pid)
        try:
            yield Watch(cast(Crew, oracle), cast(Crew, candidate)), oracle, candidate
        finally:
            process.kill()


def test_what_counts_as_company() -> None:
    assert [bool(words_of(look)) for look in (ALONE, CROWDED, IN_TURNS)] == [False, True, True]


def test_beforehand_it_may_end_and_afterwards_it_may_not() -> None:
    with watch(CROWDED, IN_TURNS, ALONE, ALONE) as (alone, oracle, _):
        with alone.alone():
            assert len(oracle.looks) == 1
        assert oracle.looks == []
    with (
        watch(ALONE, CROWDED, ALONE) as (alone, _, _),
        pytest.raises(DeviceAtWork, match="rank 0 sees blocks"),
        alone.alone(),
    ):
        pass


def test_who_stays_is_said_before_anything_is_measured() -> None:
    with (
        watch(*[IN_TURNS] * LOOKS) as (alone, _, _),
        pytest.raises(DeviceAtWork, match="a gap of 1800 us"),
        alone.alone(),
    ):
        pytest.fail("measured beside somebody")


def test_who_was_there_before_the_candidate_is_not_held_against_it() -> None:
    with watch(*[CROWDED] * LOOKS) as (alone, oracle, _):
        alone.get_used_to_company()
        assert alone.shared_before
        with alone.alone():
            assert oracle.looks == []


def test_it_was_the_candidate_if_it_ends_with_it() -> None:
    with watch(CROWDED, CROWDED, CROWDED, CROWDED, ALONE) as (alone, oracle, candidate):
        assert alone.ends_with_the_candidate()
        assert candidate.killed
        assert oracle.looks == []
    assert DeviceAtWork.on_device
    assert not Disturbed.on_device


def test_a_cpu_is_not_looked_at() -> None:
    with watch() as (alone, oracle, _):
        oracle.platform = SimpleNamespace(device="cpu")
        alone.get_used_to_company()
        with alone.alone():
            pass
    assert alone.shared_before == ""


def test_a_device_that_faults_when_the_candidate_ends_was_at_work_for_it() -> None:
    """MPS: a client killed in the middle of a kernel takes the others' contexts along."""

    class Faulting(Oracle):
        def ask(self, command: LookForCompany, *, timeout_s: float) -> dict[int, Company]:
            raise CrewFailure(CrewFailureKind.RAISED, [0], "an illegal memory access was encountered", role="oracle")

    with watch() as (_, _, candidate):
        assert Watch(cast(Crew, Faulting()), cast(Crew, candidate)).ends_with_the_candidate()
