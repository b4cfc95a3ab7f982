"""Timing from end to end on CPU ranks: kinds of calls, and no word about speed where a time says nothing."""

import dataclasses
import textwrap
from pathlib import Path

import pytest

from pkb.judge.session import evaluate
from pkb.judge.timing.looks import looks
from pkb.judge.timing.starts import over_starts
from pkb.judge.timing.statistics import Paired, estimate
from pkb.problems.registry import get
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.plan import plan
from pkb.types.verdict import Evaluation, Verdict

SHORT = dataclasses.replace(
    plan("quick"), odd_trials=0, race_calls=0, timing_rounds=2, calls_per_round=4, warmup_calls=2, verify_share=0.25
)


def judge(folder: Path, *, timing: bool | None, starts: int = 0) -> Evaluation:
    """The reference of 54 against itself, slower by a sleep where it is causal."""
    source = textwrap.dedent(get(54).reference_source)
    path = folder / "54_ring_attention_torch.py"
    path.write_text(
        "import inspect\nimport time\n\nimport torch\nimport torch.distributed as dist\n\n\n"
        f"{source.replace('def solution(', 'def as_it_is(')}\n\n"
        "def solution(*arguments):\n"
        "    if inspect.signature(as_it_is).bind(*arguments).arguments['causal']:\n"
        "        time.sleep(0.05)\n"
        "    return as_it_is(*arguments)\n"
    )
    case = Case("54", "cpu", 2, "tiny", "fp32", "quick")
    return evaluate(Job(path, case, timing=timing, custom_plan=SHORT, call_limit_s=30.0, starts=starts))


def test_kinds_are_timed_by_themselves_and_sums_agree(tmp_path: Path) -> None:
    result = judge(tmp_path, timing=True)
    assert result.verdict is Verdict.CORRECT, result.detail
    timing = result.timing
    assert timing is not None
    kinds = timing.sample_kinds
    assert [len(one) for one in kinds] == [4] * timing.rounds
    assert all(sorted(one) == ["causal", "causal", "full", "full"] for one in kinds)
    causal, full = timing.speedup_by_kind["causal"], timing.speedup_by_kind["full"]
    assert causal.candidate_us > 50_000
    assert causal.speedup < full.speedup
    assert timing.window_speedup is not None
    # Every number can be computed again from what the verdict keeps.
    samples = Paired(
        timing.reference_samples_us, timing.candidate_samples_us, kinds, {kind: 0.5 for kind in timing.speedup_by_kind}
    )
    planned = looks(2)
    errors = [error for n, one in enumerate(planned, 1) for error in (one.error, one.as_the_last(planned[n:]).error)]
    ratio = timing.speedup, timing.speedup_low, timing.speedup_high
    assert ratio in [estimate(samples, error).ratio for error in errors], "after a look, or when time was up"
    assert samples.typical_us() == (timing.reference_us, timing.candidate_us)


def test_several_starts_of_the_ranks_are_one_measurement(tmp_path: Path) -> None:
    result = judge(tmp_path, timing=True, starts=3)
    assert result.verdict is Verdict.CORRECT, result.detail
    timing = result.timing
    assert timing is not None
    first, *others = timing.start_rounds
    assert others == [2, 2], "half of the planned rounds in each, two at least"
    assert first + sum(others) == timing.rounds == len(timing.reference_samples_us)
    found = []
    for n, rounds in enumerate(timing.start_rounds):
        before = sum(timing.start_rounds[:n])
        part = slice(before, before + rounds)
        shares = {kind: 0.5 for kind in timing.speedup_by_kind}
        samples = Paired(
            timing.reference_samples_us[part], timing.candidate_samples_us[part], timing.sample_kinds[part], shares
        )
        found.append(estimate(samples))
    assert (timing.speedup, timing.speedup_low, timing.speedup_high) == pytest.approx(over_starts(found).ratio)
    assert timing.speedup_by_kind["causal"].speedup < timing.speedup_by_kind["full"].speedup


def test_overwritten_results_are_copied_in_every_start() -> None:
    """Or the timed calls of a second start would come out wrong, and be called a race."""
    path = Path(__file__).parents[1] / "adversaries" / "mistakes" / "reused_output_timed.py"
    plan_with_races = dataclasses.replace(SHORT, race_calls=4, race_repeats=1, verify_share=1.0, race_traces=0)
    case = Case("1", "cpu", 2, "tiny", "bf16", "quick")
    result = evaluate(Job(path, case, timing=True, custom_plan=plan_with_races, call_limit_s=30.0, starts=2))
    assert result.verdict is Verdict.REUSED_OUTPUT, result.detail
    assert result.timing is not None
    assert len(result.timing.start_rounds) == 2


def test_nothing_is_timed_on_a_cpu_unless_somebody_asks(tmp_path: Path) -> None:
    result = judge(tmp_path, timing=None)
    assert (result.verdict, result.timing) == (Verdict.CORRECT, None), result.detail
    assert "not timed" in result.checks
