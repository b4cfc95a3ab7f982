"""Several GPUs have several clocks, with offsets and rates of their own: no time depends on them, and the drift is measured."""

import random
import time
from functools import partial

import pytest

from pkb.judge.timing.conclude import seen_drift_ppm
from pkb.judge.timing.rounds import drift_ppm, timed_batch
from pkb.types.protocol.replies import BatchReport

CALLS, APART_NS, CALL_NS, SKEW_NS = 25, 6_000_000, 30_000, 1_000


def batch(rates_ppm: list[float], *, offset_ns: int = 0, seed: int = 1) -> dict[int, BatchReport]:
    """All ranks leave a barrier on the device within a microsecond and work for 30 us; each says so by its own clock."""
    source = random.Random(seed)
    stamps: list[list[tuple[int, int, int]]] = [[] for _ in rates_ppm]
    for call in range(CALLS):
        together = (call + 1) * APART_NS
        for rank, ppm in enumerate(rates_ppm):
            start = together + source.uniform(0, SKEW_NS)
            own = [int((ns + offset_ns * rank) * (1 + ppm * 1e-6)) for ns in (start, start + CALL_NS)]
            stamps[rank].append((own[0], own[1], own[1]))
    return {rank: BatchReport(tuple(calls), ((),) * CALLS, (5.0,) * CALLS) for rank, calls in enumerate(stamps)}


@pytest.mark.parametrize("ppm", [0.0, 5.0, 20.0, 50.0, -50.0])
@pytest.mark.parametrize("offset_ns", [0, 10**9])
def test_times_do_not_depend_on_how_the_clocks_run(monkeypatch: pytest.MonkeyPatch, ppm: float, offset_ns: int) -> None:
    """With one origin for all, 50 ppm would make the last call of the batch 38 instead of 30 us, and an offset anything."""
    reports = batch([0.0, ppm, -ppm, ppm / 2], offset_ns=offset_ns)
    for judged in (True, False):
        _, times = timed_batch(partial(_after_a_second, reports, monkeypatch), judged=judged)
        assert times.calls_us == pytest.approx([CALL_NS / 1e3] * CALLS, rel=1e-3)


def _after_a_second(reports: dict[int, BatchReport], monkeypatch: pytest.MonkeyPatch) -> dict[int, BatchReport]:
    now = time.perf_counter_ns()
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now + 10**9)
    return reports


@pytest.mark.parametrize("ppm", [5.0, 20.0, -50.0])
def test_the_drift_is_measured(ppm: float) -> None:
    """A microsecond of skew over 150 ms is 3 ppm of noise."""
    assert drift_ppm(batch([0.0, ppm, 0.0], offset_ns=10**9)) == pytest.approx([ppm, 0.0], abs=5.0)


def test_what_is_reported_is_seen_in_all_rounds() -> None:
    rounds = [drift_ppm(batch([0.0, 50.0, 0.0], seed=seed)) for seed in range(4)]
    assert seen_drift_ppm(rounds) == pytest.approx(50.0, abs=5.0)
    source = random.Random(2)
    one_clock = [[[source.gauss(0, 3000) for _ in range(7)] for _ in range(8)] for _ in range(200)]
    assert sum(seen_drift_ppm(rounds) is not None for rounds in one_clock) < 0.05 * len(one_clock)
    assert seen_drift_ppm([[5.0]]) is None
    assert seen_drift_ppm([[], []]) is None


def test_one_rank_or_one_call_has_no_drift() -> None:
    assert drift_ppm(batch([0.0])) == []
    one = {rank: BatchReport(((0, 1, 1),), ((),), (1.0,)) for rank in range(2)}
    assert drift_ppm(one) == []
