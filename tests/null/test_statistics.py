"""Statistics: the interval covers the truth, ties are ties, and a clock that lies is found out on synthetic samples."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkb.judge.statistics import ClockCheck, Ratio, Rounds, clocks_agree, median, quantile, speedup

ROUNDS, CALLS = 7, 10


def samples(source: random.Random, *, typical_us: float, noise: float = 0.05, drift: list[float]) -> Rounds:
    """Times as machines give them: bounded below, a tail above, and rounds that are slow as a whole."""
    return [[typical_us * slow * (1 + source.expovariate(1 / noise)) for _ in range(CALLS)] for slow in drift]


def pair_of(seed: int, true_speedup: float) -> tuple[Rounds, Rounds]:
    source = random.Random(seed)
    drift = [source.uniform(0.8, 1.3) for _ in range(ROUNDS)]  # common to both sides of a round
    reference = samples(source, typical_us=100.0 * true_speedup, drift=drift)
    return reference, samples(source, typical_us=100.0, drift=drift)


def test_unchanged_code_is_called_the_same() -> None:
    """A strict comparison of medians would call half of these faster or slower."""
    decisions = [speedup(*pair_of(seed, 1.0)).decision for seed in range(40)]
    assert decisions.count("same") >= 36, decisions


@pytest.mark.parametrize(("true_speedup", "decision"), [(2.0, "faster"), (0.5, "slower"), (1.2, "faster")])
def test_a_real_difference_is_seen(true_speedup: float, decision: str) -> None:
    for seed in range(10):
        ratio = speedup(*pair_of(seed, true_speedup))
        assert ratio.decision == decision
        assert ratio.value == pytest.approx(true_speedup, rel=0.1)


@pytest.mark.parametrize("true_speedup", [1.1, 3.0])
def test_the_interval_covers_the_truth(true_speedup: float) -> None:
    """95 % asked; at 40 trials below 85 % would be an interval that is wrong, not bad luck (p < 0.01)."""
    covered = 0
    for seed in range(40):
        ratio = speedup(*pair_of(seed + 1000, true_speedup))
        covered += ratio.low <= true_speedup <= ratio.high
        assert (ratio.high - ratio.low) / ratio.value < 0.25, "an interval that covers everything says nothing"
    assert covered >= 34


def test_drift_common_to_both_sides_does_not_widen_the_interval_beyond_use() -> None:
    """Rounds are resampled as pairs: resampling each side by itself would let the drift of 10x into the ratio."""
    drift = [1.0, 10.0, 1.0, 10.0, 1.0, 10.0, 1.0]
    source = random.Random(5)
    reference = samples(source, typical_us=200, noise=0.01, drift=drift)
    ratio = speedup(reference, samples(source, typical_us=100, noise=0.01, drift=drift))
    assert 1.9 < ratio.low <= ratio.value <= ratio.high < 2.1


def test_the_same_samples_give_the_same_interval() -> None:
    """A verdict can be recomputed from the samples it keeps."""
    assert speedup(*pair_of(1, 1.3)) == speedup(*pair_of(1, 1.3))


@given(st.integers(0, 2**32), st.floats(0.3, 3.0))
@settings(max_examples=15, deadline=None)
def test_swapping_the_sides_inverts_the_ratio(seed: int, true_speedup: float) -> None:
    reference, candidate = pair_of(seed, true_speedup)
    there, back = speedup(reference, candidate), speedup(candidate, reference)
    assert there.value == pytest.approx(1 / back.value)
    assert there.low == pytest.approx(1 / back.high, rel=0.05)
    assert {there.decision, back.decision} in ({"same"}, {"faster", "slower"})


@given(st.integers(0, 2**32), st.floats(1e-3, 1e3))
@settings(max_examples=10, deadline=None)
def test_units_do_not_matter(seed: int, unit: float) -> None:
    reference, candidate = pair_of(seed, 1.5)
    other = speedup([[t * unit for t in r] for r in reference], [[t * unit for t in r] for r in candidate])
    assert other == pytest.approx(speedup(reference, candidate))


def test_rounds_must_match() -> None:
    with pytest.raises(ValueError, match="same rounds"):
        speedup([[1.0]], [[1.0], [1.0]])
    with pytest.raises(ValueError, match="same rounds"):
        speedup([], [])


@pytest.mark.parametrize(
    ("ratio", "decision"),
    [((1.1, 1.01, 1.2), "faster"), ((1.1, 1.0, 1.2), "same"), ((0.9, 0.8, 1.0), "same"), ((0.9, 0.8, 0.99), "slower")],
)
def test_an_interval_that_touches_one_is_a_tie(ratio: tuple[float, float, float], decision: str) -> None:
    assert Ratio(*ratio).decision == decision


def test_median_and_quantiles_are_over_all_calls() -> None:
    rounds = [[1.0, 2.0, 3.0], [4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 100.0]]
    assert median(rounds) == 5.5
    assert quantile(rounds, 0.1) == 2.0
    assert quantile(rounds, 0.9) == 100.0
    assert quantile([[3.0]], 0.9) == 3.0


# -- the judge's clock ------------------------------------------------------------------------------------------------


def clock_case(
    *, reference_us: float, claimed_us: float, true_us: float, jitter_us: float = 100.0, outlier_us: float = 0.0
) -> ClockCheck:
    """Ten calls a round; the wall clock sees the true times, an overhead common to both sides, and jitter."""
    source = random.Random(3)

    def wall(call_us: float) -> list[float]:
        return [5_000 + CALLS * call_us + source.gauss(0, jitter_us) for _ in range(ROUNDS)]

    candidate_wall = wall(true_us)
    candidate_wall[3] += outlier_us
    return clocks_agree(
        reference_us=[[reference_us] * CALLS for _ in range(ROUNDS)],
        candidate_us=[[claimed_us] * CALLS for _ in range(ROUNDS)],
        reference_wall_us=wall(reference_us),
        candidate_wall_us=candidate_wall,
    )


@pytest.mark.parametrize("true_us", [100.0, 500.0, 1000.0, 3000.0])
def test_honest_times_are_accepted(true_us: float) -> None:
    assert clock_case(reference_us=1000, claimed_us=true_us, true_us=true_us).agrees


@pytest.mark.parametrize(("claimed_us", "true_us"), [(10.0, 1000.0), (500.0, 1000.0), (1.0, 5000.0), (100.0, 800.0)])
def test_faked_times_are_rejected(claimed_us: float, true_us: float) -> None:
    """Also from a candidate that is somewhat faster than the reference and claims to be much faster."""
    check = clock_case(reference_us=1000, claimed_us=claimed_us, true_us=true_us)
    assert not check.agrees
    assert "seen on the judge's clock" in check.words


@pytest.mark.parametrize("outlier_us", [1e6, -4_000.0])
def test_one_odd_round_changes_nothing(outlier_us: float) -> None:
    """Neither does a hiccup convict an honest candidate, nor does one lucky round acquit a liar."""
    assert clock_case(reference_us=1000, claimed_us=200, true_us=200, outlier_us=outlier_us).agrees
    assert not clock_case(reference_us=1000, claimed_us=200, true_us=1000, outlier_us=outlier_us).agrees


def test_what_the_noise_hides_is_said_to_be_hidden() -> None:
    check = clock_case(reference_us=30, claimed_us=3, true_us=30)
    assert check.agrees
    assert "within the wall clock's noise" in check.words
    loud = clock_case(reference_us=1000, claimed_us=10, true_us=1000, jitter_us=20_000)
    assert loud.agrees
    assert "within the wall clock's noise" in loud.words


def test_a_slower_candidate_claims_nothing() -> None:
    assert clock_case(reference_us=100, claimed_us=900, true_us=900).agrees


@pytest.mark.xfail(strict=True, reason="a claim of up to twice the noise passes with nothing seen, and is not said to")
@given(st.floats(1.0, 3000.0), st.floats(0.0, 1.0))
@settings(max_examples=100, deadline=None)
def test_no_unseen_claim_is_accepted_in_silence(reference_us: float, share: float) -> None:
    """True time equal to the reference's: every saving is made up, so it is rejected or called noise."""
    check = clock_case(reference_us=reference_us, claimed_us=reference_us * share, true_us=reference_us)
    assert not check.agrees or "noise" in check.words
