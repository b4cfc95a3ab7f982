"""Statistics: the interval covers the truth, ties are ties, and a clock that lies is found out on synthetic samples."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkb.judge.timing.statistics import (
    Claim,
    ClockCheck,
    Ratio,
    Rounds,
    check_clock,
    median,
    quantile,
    speedup,
    uncontended,
)
from pkb.types.timing import Decision

ROUNDS, CALLS = 8, 10


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
    assert decisions.count(Decision.SAME) >= 36, decisions


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


# -- the host wall clock -----------------------------------------------------------------------------------------------


EMPTY = [10.0] * 3 * ROUNDS


def walls(true_us: float, seed: int, *, jitter: float = 0.03, odd_round: float = 1.0) -> list[float]:
    source = random.Random(seed)
    times = [true_us * (1 + abs(source.gauss(0, jitter))) + EMPTY[0] for _ in range(ROUNDS)]
    times[3] *= odd_round
    return times


def clock(
    *,
    claimed_us: float,
    true_us: float,
    host_us: float = 5.0,
    reference_us: float = 1000.0,
    seed: int = 1,
    **how: float,
) -> ClockCheck:
    """A candidate that claims one time and takes another, beside an honest reference."""
    return check_clock(
        Claim(device_us=reference_us, host_us=5.0, wall_us=walls(reference_us, seed)),
        Claim(device_us=claimed_us, host_us=host_us, wall_us=walls(true_us, seed + 10_000, **how)),
        EMPTY,
    )


@pytest.mark.parametrize("true_us", [20.0, 500.0, 900.0])
def test_an_honest_faster_candidate_is_confirmed(true_us: float) -> None:
    assert clock(claimed_us=true_us, true_us=true_us)[:2] == (True, False)


@pytest.mark.parametrize("true_us", [1000.0, 1100.0, 30_000.0])
def test_an_honest_slower_candidate_is_neither_confirmed_nor_contradicted(true_us: float) -> None:
    assert clock(claimed_us=true_us, true_us=true_us)[:2] == (False, False)


@pytest.mark.parametrize(("claimed_us", "true_us"), [(10.0, 1000.0), (400.0, 1000.0), (1.0, 5000.0), (100.0, 800.0)])
def test_faked_times_are_contradicted(claimed_us: float, true_us: float) -> None:
    """Also of a candidate that is somewhat faster than the reference and claims to be much faster."""
    check = clock(claimed_us=claimed_us, true_us=true_us)
    assert check.contradicts
    assert check.confirms == (true_us < 1000), "ahead or not is read off the host wall clock, whatever was claimed"
    assert "on the host wall clock" in check.words


def test_a_claim_that_the_clock_cannot_refute_earns_nothing() -> None:
    """Half of the true time, or what a message costs: not called a lie, and not called faster either."""
    assert clock(claimed_us=600, true_us=1000)[:2] == (False, False)
    assert clock(claimed_us=1, true_us=40, reference_us=40)[:2] == (False, False)


def test_time_on_the_host_accounts_for_the_wall_clock_too() -> None:
    """Launching may take longer than the device works; that is slow, not dishonest."""
    assert not clock(claimed_us=10, true_us=1000, host_us=1000).contradicts


@pytest.mark.parametrize("odd_round", [1000.0, 0.01])
def test_one_odd_round_changes_nothing(odd_round: float) -> None:
    """Neither does a hiccup convict an honest candidate, nor one lucky round acquit a liar."""
    assert clock(claimed_us=500, true_us=500, odd_round=odd_round)[:2] == (True, False)
    assert clock(claimed_us=100, true_us=1000, odd_round=odd_round)[:2] == (False, True)


def test_a_machine_too_busy_for_the_reference_accuses_nobody() -> None:
    busy = Claim(device_us=10, host_us=5, wall_us=walls(5000, 1))
    assert not check_clock(busy, Claim(device_us=10, host_us=5, wall_us=walls(5000, 2)), EMPTY).contradicts


def test_unchanged_code_is_rarely_confirmed_as_faster() -> None:
    """True time equal to the reference's, whatever is claimed: at most a few of a hundred by chance."""
    confirmed = sum(clock(claimed_us=900, true_us=1000, seed=seed).confirms for seed in range(40))
    assert confirmed <= 4


@given(st.floats(10.0, 1e5), st.floats(0.0, 0.3), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_honest_candidates_are_never_contradicted(true_us: float, jitter: float, seed: int) -> None:
    """A contradiction becomes a rejection, which says that somebody cheats."""
    assert not clock(claimed_us=true_us, true_us=true_us, seed=seed, jitter=jitter).contradicts


def disturbed(true_us: float, source: random.Random, *, calls: int, rounds: int) -> list[float]:
    """Batches as a busy machine shows them: 3 ms for telling and hearing, some ms on top, now and then tens of them."""
    return [
        true_us + (3000 + source.expovariate(1 / 2000) + (source.random() < 0.08) * source.uniform(1e4, 6e4)) / calls
        for _ in range(rounds)
    ]


@pytest.mark.parametrize(
    ("reference_us", "candidate_us", "calls", "least_caught", "least_confirmed"),
    [(98_000, 1840, 2, 55, 60), (2000, 750, 2, 40, 30), (2800, 520, 5, 50, 55)],
)
def test_a_busy_machine_convicts_hardly_anybody_and_lets_few_liars_go(
    reference_us: float, candidate_us: float, calls: int, least_caught: int, least_confirmed: int
) -> None:
    """Few calls that are shorter than what disturbs them. Whoever is suspected is measured again, as often as before."""
    source = random.Random(3)
    honest, faked, confirmed = 0, 0, 0
    for _ in range(60):
        first, second = (
            [
                disturbed(us, source, calls=calls, rounds=n)
                for us, n in ((reference_us, n), (candidate_us, n), (0, 3 * n))
            ]
            for n in (8, 8)
        )

        def check(claimed_us: float, reference: list[float], ours: list[float], empty: list[float]) -> ClockCheck:
            return check_clock(Claim(reference_us, 5.0, reference), Claim(claimed_us, 5.0, ours), empty)

        both = [a + b for a, b in zip(first, second, strict=True)]
        honest += check(candidate_us, *first).contradicts and check(candidate_us, *both).contradicts
        faked += check(candidate_us / 20, *first).contradicts and check(candidate_us / 20, *both).contradicts
        confirmed += check(candidate_us, *first).confirms
    assert honest <= 1
    assert faked >= least_caught, "who claims a twentieth of the true time; what is 0.7 ms among 2 ms of noise may pass"
    assert confirmed >= least_confirmed


def test_what_telling_the_ranks_costs_is_nobodys() -> None:
    """Walls that are an empty batch's own say nothing about the calls, for or against."""
    nothing = [3000.0 + n % 7 for n in range(24)]
    check = check_clock(Claim(100.0, 10.0, nothing[:8]), Claim(10.0, 1.0, nothing[:8]), nothing)
    assert check[:2] == (False, False)
    assert check.reference_us == check.candidate_us < 10


def test_host_and_device_that_share_a_clock_must_agree() -> None:
    """The time that passed is accounted for by the host's claim alone, so that only the two claims together tell."""
    reference = Claim(1000.0, 1000.0, walls(1000, 1))
    lying, honest = (Claim(device_us, 1000.0, walls(1000, 2)) for device_us in (400.0, 900.0))
    check = check_clock(reference, lying, EMPTY, one_clock=True)
    assert (check.too_long, check.split, check.contradicts) == (False, True, True)
    assert "1000 us inside a call that is said to take 400 us" in check.words
    assert not check_clock(reference, honest, EMPTY, one_clock=True).contradicts
    assert not check_clock(reference, lying, EMPTY).contradicts, "a GPU may wait for its host"


@pytest.mark.parametrize(("rounds", "decides"), [(1, 1), (2, 1), (4, 2), (5, 3), (8, 3), (16, 5), (24, 7)])
def test_neither_lucky_nor_disturbed_rounds_decide(rounds: int, decides: int) -> None:
    assert uncontended([float(n) for n in range(rounds, 0, -1)]) == decides
