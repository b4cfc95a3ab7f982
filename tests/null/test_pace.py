"""Small cases get the plan's numbers; large ones as many calls as memory and the budget of bytes allow, at least two."""

import itertools
from dataclasses import replace

import pytest

from pkb.judge.budgets import MEMORY_SHARE, RACES_TRUTH_S, STAGE_BYTES, TIMING_BYTES, Pace, affordable_trials
from pkb.judge.exchange import CallBytes
from pkb.judge.stages.races import SCENARIOS
from pkb.types.plan import plan

GB = 10**9
STANDARD = plan("standard")


def pace(*, arguments: int, outputs: int, truth: int = 0, memory: int = 140 * GB) -> Pace:
    return Pace(STANDARD, memory, arguments, CallBytes(outputs, truth))


def test_a_small_case_gets_the_whole_plan() -> None:
    small = pace(arguments=8 << 20, outputs=8 << 20, truth=32 << 20)
    assert small.races() == (STANDARD.race_calls, STANDARD.race_repeats)
    assert small.timing() == (STANDARD.calls_per_round, STANDARD.timing_rounds)


def test_nothing_at_all_is_no_division_by_zero() -> None:
    assert pace(arguments=0, outputs=0).timing() == (STANDARD.calls_per_round, STANDARD.timing_rounds)
    assert pace(arguments=0, outputs=0).races() == (STANDARD.race_calls, STANDARD.race_repeats)


@pytest.mark.parametrize(("arguments", "outputs"), [(GB // 2, 4 * GB), (GB, GB), (8 * GB, 8 * GB), (40 * GB, GB)])
def test_a_large_case_stays_within_the_budgets_or_at_the_least(arguments: int, outputs: int) -> None:
    large = pace(arguments=arguments, outputs=outputs, truth=4 * outputs)
    calls, repeats = large.races()
    moved = calls * repeats * len(SCENARIOS) * (arguments + outputs)
    assert moved <= STAGE_BYTES or (calls, repeats) == (2, 1)
    assert calls * (arguments + 5 * outputs) <= MEMORY_SHARE * 140 * GB or calls == 2
    calls, rounds = large.timing()
    assert 4 <= rounds <= STANDARD.timing_rounds
    moved = 2 * (rounds + 1) * calls * arguments
    assert moved <= STAGE_BYTES or (calls == 2 and moved <= TIMING_BYTES) or (calls, rounds) == (2, 4)


def test_correctness_makes_fewer_calls_only_where_they_move_more_than_a_stage_may() -> None:
    fifth, whole = int(STAGE_BYTES / 5), int(STAGE_BYTES)
    assert affordable_trials(5, argument_bytes=fifth - GB, output_bytes=GB) == 5
    assert affordable_trials(5, argument_bytes=fifth, output_bytes=GB) == 3
    assert affordable_trials(5, argument_bytes=whole, output_bytes=whole) == 2
    assert affordable_trials(1, argument_bytes=whole, output_bytes=whole) == 1


def test_larger_is_never_more() -> None:
    sizes = [10**n for n in range(5, 12)]
    for a, b in itertools.pairwise(sizes):
        less, more = pace(arguments=b, outputs=b), pace(arguments=a, outputs=a)
        assert less.timing().calls * less.timing().rounds <= more.timing().calls * more.timing().rounds
        assert less.races().calls * less.races().repeats <= more.races().calls * more.races().repeats


def test_a_plan_with_few_rounds_keeps_them() -> None:
    few = replace(STANDARD, timing_rounds=2)
    assert Pace(few, 140 * GB, 40 * GB, CallBytes(GB, GB)).timing().rounds == 2


def test_truths_that_take_long_are_fewer() -> None:
    """Seconds, not bytes: a float64 attention of small tensors."""
    slow = Pace(STANDARD, 140 * GB, 8 << 20, CallBytes(8 << 20, 32 << 20, truth_s=3.0))
    calls, repeats = slow.races()
    assert 2 <= calls * repeats <= RACES_TRUTH_S / (3.0 * len(SCENARIOS))
    endless = Pace(STANDARD, 140 * GB, 8 << 20, CallBytes(8 << 20, 32 << 20, truth_s=1e6))
    assert endless.races() == (2, 1), "data must rotate even then"
