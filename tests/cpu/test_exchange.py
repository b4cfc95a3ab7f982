"""Truths of a batch: all known before the comparison where they are small, one after another where they are large."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pkb.judge import exchange as cases
from pkb.judge.crew.failure import CrewFailure
from pkb.judge.crew.sides import candidate_crew, oracle_crew
from pkb.judge.exchange import Exchange
from pkb.platforms.cpu import CpuPlatform
from pkb.problems.layouts import groups
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.protocol.commands import DrawSpec, Forget, Load, Open, Schedule

RANKS = 2
SPEC = DrawSpec("1", "tiny", "bf16")
STALE_FROM_THE_FOURTH_ON = """
import torch
import torch.distributed as dist

results = []


def solution(tensor: torch.Tensor) -> torch.Tensor:
    total = tensor.clone()
    dist.all_reduce(total)
    results.append(total)
    return results[1].clone() if len(results) >= 4 else total.clone()
"""

ONE_OUTPUT_FOR_ALL = """
import torch
import torch.distributed as dist

kept = []


def solution(tensor: torch.Tensor) -> torch.Tensor:
    total = tensor.clone()
    dist.all_reduce(total)
    if not kept:
        kept.append(torch.empty_like(total))
    return kept[0].copy_(total)
"""


@contextlib.contextmanager
def exchange_of(candidate: Path) -> Iterator[Exchange]:
    job = Job(candidate, Case(SPEC.problem, "cpu", RANKS, SPEC.size, SPEC.dtype, "quick"))
    platform = CpuPlatform()
    with (
        oracle_crew(job, platform, RANKS) as oracle,
        candidate_crew(job, platform, RANKS, build=candidate.parent, backend="torch") as side,
    ):
        oracle.launch()
        side.launch()
        oracle.await_ready()
        side.await_ready()
        exchange = Exchange(oracle, side, limit_s=60)
        exchange.open(Open.of("world", groups("world", RANKS)))
        side.ask(Load(str(candidate)), timeout_s=60)
        yield exchange


def forgotten(exchange: Exchange, slot: int) -> bool:
    """Forgets what may be known; the oracle complains where it is not."""
    try:
        exchange.oracle.ask(Forget(slot), timeout_s=30)
    except CrewFailure as failure:
        return failure.role == "oracle"
    return False


def test_truths_together_and_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text(STALE_FROM_THE_FOURTH_ON)
    with exchange_of(candidate) as exchange:
        slots = exchange.deliver(SPEC, 4)
        exchange.run_candidate(Schedule(slots))

        wrong = exchange.check(slots, words="queued").mismatch
        assert wrong is not None
        assert wrong.case == "queued, call 3"
        assert "stale data: the differing elements are those of an earlier call (2 calls before)" in wrong.pattern
        assert not forgotten(exchange, slots[0])

        monkeypatch.setattr(cases, "TRUTH_SHARE", 0.0)
        fresh = Exchange(exchange.oracle, exchange.candidate, limit_s=60)
        for slot in slots[1:]:
            assert not forgotten(exchange, slot)
        right = fresh.check(slots[:3], words="queued")
        assert right.mismatch is None
        assert set(right.digests) == {(slot, rank) for slot in slots[:3] for rank in range(RANKS)}
        assert 0 < right.worst_ratio < 1
        wrong = fresh.check(slots, words="queued").mismatch
        assert wrong is not None
        assert wrong.case == "queued, call 3"
        assert "stale" not in wrong.pattern, "there was nothing left to compare it with"
        assert forgotten(exchange, slots[0])


def test_a_reused_output_is_recognised_with_little_room_for_truths(tmp_path: Path) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text(ONE_OUTPUT_FOR_ALL)
    with exchange_of(candidate) as exchange:
        slots = exchange.deliver(SPEC, 4)
        reports = exchange.run_candidate(Schedule(slots))
        assert all(report.reused == () for report in reports.values()), "nobody asked"
        exchange.__dict__["_room_for_truths"] = 3 * exchange.know_truth(slots[:1]).truth
        outcome = exchange.check(slots, words="queued")
        assert outcome.overwritten
        assert outcome.mismatch is not None
        assert outcome.mismatch.pattern == "overwritten: the whole result is that of a later call (3 calls later)"
        exchange.drop()

        exchange.copies = True
        slots = exchange.deliver(SPEC, 4)
        reports = exchange.run_candidate(Schedule(slots))
        assert all(report.reused == (True,) * 4 for report in reports.values())
        assert exchange.check(slots, words="copied").mismatch is None


def test_the_reference_is_measured_several_times_on_the_same_arguments(tmp_path: Path) -> None:
    """What an empty batch leaves behind is what came: sealed, to be opened once more. The candidate finds the same."""
    candidate = tmp_path / "candidate.py"
    candidate.write_text(ONE_OUTPUT_FOR_ALL.replace("kept[0].copy_(total)", "total"))
    with exchange_of(candidate) as exchange:
        queued = Schedule(exchange.deliver(SPEC, 2, keep=True), digests=True)
        digests = []
        for _ in range(3):
            reports = exchange.run_oracle(queued, function="reference")
            digests.append([report.digests for report in reports.values()])
            exchange.run_oracle(replace(queued, empty=True), function="reference")
        assert digests[0] == digests[1] == digests[2]
        assert digests[0] == [report.digests for report in exchange.run_candidate(queued).values()]
