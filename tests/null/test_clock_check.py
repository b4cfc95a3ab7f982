"""The host wall clock: honest candidates are confirmed, forged times are found out or earn nothing."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkb.judge.timing.statistics import (
    UNSEEN,
    Claim,
    ClockCheck,
    Paired,
    WindowRatio,
    check_clock,
    uncontended,
    window_ratio,
)

ROUNDS = 8

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
def test_an_honest_slower_candidate_is_not_contradicted(true_us: float) -> None:
    """Nor is it said to lie by the window: that supports what the ranks say, whichever way it points."""
    check = clock(claimed_us=true_us, true_us=true_us)
    assert not check.contradicts
    assert check.window.low <= 1000.0 / true_us <= check.window.high


@pytest.mark.parametrize(("claimed_us", "true_us"), [(10.0, 1000.0), (400.0, 1000.0), (1.0, 5000.0), (100.0, 800.0)])
def test_faked_times_are_contradicted(claimed_us: float, true_us: float) -> None:
    """Also of a candidate that is somewhat faster than the reference and claims to be much faster."""
    check = clock(claimed_us=claimed_us, true_us=true_us)
    assert check.contradicts
    assert not check.confirms, "not even that it is ahead, if what is claimed cannot be"
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
    """True time equal to the reference's, a gain claimed that the window can tell from none: a few by chance."""
    confirmed = sum(clock(claimed_us=850, true_us=1000, seed=seed).confirms for seed in range(40))
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
    ("reference_us", "candidate_us", "calls", "least_caught"),
    [(98_000, 1840, 2, 55), (2000, 750, 2, 40), (2800, 520, 5, 50)],
)
def test_a_busy_machine_convicts_hardly_anybody_and_lets_few_liars_go(
    reference_us: float, candidate_us: float, calls: int, least_caught: int
) -> None:
    """Few calls that are shorter than what disturbs them. Whoever is suspected is measured again, as often as before; and whom
    the window does not confirm at once, it confirms with more rounds."""
    source = random.Random(3)
    honest, faked, confirmed = 0, 0, 0
    for _ in range(60):
        first, second, later = (
            [
                disturbed(us, source, calls=calls, rounds=n)
                for us, n in ((reference_us, 3 * n), (candidate_us, n), (0, 3 * n))
            ]
            for n in (8, 8, 24)
        )

        def check(claimed_us: float, reference: list[float], ours: list[float], empty: list[float]) -> ClockCheck:
            return check_clock(Claim(reference_us, 5.0, reference), Claim(claimed_us, 5.0, ours), empty)

        both = [a + b for a, b in zip(first, second, strict=True)]
        honest += check(candidate_us, *first).contradicts and check(candidate_us, *both).contradicts
        faked += check(candidate_us / 20, *first).contradicts and check(candidate_us / 20, *both).contradicts
        confirmed += check(candidate_us, *[a + b for a, b in zip(first, later, strict=True)]).confirms
    assert honest <= 1
    assert faked >= least_caught, "who claims a twentieth of the true time; what is 0.7 ms among 2 ms of noise may pass"
    assert confirmed >= 55


def test_what_telling_the_ranks_costs_is_nobodys() -> None:
    """Walls that are an empty batch's own say nothing about the calls, for or against."""
    nothing = [3000.0 + n % 7 for n in range(24)]
    check = check_clock(Claim(100.0, 10.0, nothing[:8]), Claim(10.0, 1.0, nothing[:8]), nothing)
    assert check[:2] == (False, False)
    assert check.reference_us == check.candidate_us < 10


def test_a_candidate_that_is_fast_on_one_kind_and_slow_on_another_is_no_liar() -> None:
    """Reference 10 ms on both kinds; 0.5 ms on three calls of four and 5 ms on the others. Its median is 0.5 ms and the
    clock sees 1.6 ms a call: sums agree, and the window places it above 1."""
    mean_us = 0.75 * 500 + 0.25 * 5000
    for seed in range(20):
        reference = Claim(10_000.0, 5.0, walls(10_000, seed))
        honest = Claim(mean_us, 5.0, walls(mean_us, seed + 50), quoted_us=500.0)
        assert not check_clock(reference, honest, EMPTY).contradicts


def test_all_the_time_in_a_few_calls_proves_nothing_about_the_rest() -> None:
    """A forger whose reports add up: one call of 25 has all of the time, and the median is a hundredth of the truth. It is
    ahead on the host wall clock, by a tenth; a hundred times is not proven by that."""
    reference = Claim(1000.0, 5.0, walls(1000, 1))
    check = check_clock(reference, Claim(900.0, 5.0, walls(900, 2), quoted_us=9.0), EMPTY)
    assert (check.confirms, check.contradicts) == (False, False)
    assert check_clock(reference, Claim(900.0, 5.0, walls(900, 2)), EMPTY).confirms


@pytest.mark.parametrize(("slow", "confirmed"), [(1.0, True), (3.0, True), (5.0, False)])
def test_who_is_slow_in_two_calls_of_five_is_not_twice_as_fast(slow: float, confirmed: bool) -> None:
    """The median sees the three others. Ahead in sum it is faster, and the words say by how much; else it is not."""
    times = [50.0, 50.0, 50.0, 50.0 * slow, 50.0 * slow] * 5
    samples = Paired([[100.0] * 25] * ROUNDS, [times] * ROUNDS)
    (theirs, ours), (most_theirs, most_ours) = samples.typical_us(), samples.most_us()
    assert (theirs, ours) == (100.0, 50.0)
    true_us = sum(times) / len(times)
    check = check_clock(
        Claim(100.0, 5.0, [110.0] * ROUNDS, theirs, most_theirs),
        Claim(true_us, 5.0, [true_us + 10] * ROUNDS, ours, most_ours),
        EMPTY,
    )
    assert check.confirms == confirmed
    assert ("not 2.00x, by the sum" in check.words) == (slow > 1)


# -- the window --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "claimed", "supported"),
    [
        ((1.5, 1.4, 1.6), 1.5, True),
        ((1.4, 1.3, 1.5), 2.5, True),  # bound by the host: ahead all the same
        ((1.04, 0.99, 1.1), 1.05, True),
        ((1.0, 0.98, 1.01), 1.05, False),  # it says otherwise
        ((1.03, 1.01, 1.05), 1.8, False),  # hardly ahead, and that is not what is claimed
        ((1.0, 0.5, math.inf), 3.0, False),  # it covers everything, and excludes nothing
        ((1.0, 0.99, 1.2), 0.99 * UNSEEN + 0.01, False),
        ((1.0, 0.99, 1.2), 0.99 * UNSEEN - 0.01, True),
        ((0.9, 0.85, 0.95), 1.2, False),
    ],
)
def test_a_claim_needs_a_window_that_can_tell(
    window: tuple[float, float, float], claimed: float, supported: bool
) -> None:
    assert WindowRatio(*window).supports(claimed) == supported


@pytest.mark.parametrize("true_us", [3.0, 10.0, 50.0, 200.0, 2000.0])
def test_forged_times_gain_a_tenth_at_most(true_us: float) -> None:
    """As fast as the reference, whatever is claimed, with the noise of a window: some microseconds on top of each batch."""
    supported = 0
    for seed in range(20):
        source = random.Random(seed)

        def batches(us: float, source: random.Random = source) -> list[float]:
            return [us + 15 + source.expovariate(1 / 5) + us * abs(source.gauss(0, 0.02)) for _ in range(ROUNDS)]

        window = window_ratio(batches(true_us), batches(true_us), batches(0))
        supported += window.supports(1.3)
    assert supported <= 1, "only where chance has put the whole interval above 1"


def test_a_window_as_short_as_an_empty_one_has_no_upper_bound() -> None:
    window = window_ratio([30.0] * 8, [10.0] * 8, [10.0] * 8)
    assert window.high == window.low == math.inf
    assert window_ratio([30.0] * 8, [20.0] * 8, [10.0] * 24) == pytest.approx((2.0, 2.0, 2.0))
    nothing = window_ratio([10.0] * 8, [10.0] * 8, [10.0] * 8)
    assert nothing.low < 1e-3, "neither side took any time"
    assert not nothing.supports(1.05)


def test_one_round_says_nothing_and_two_very_little() -> None:
    assert window_ratio([30.0], [20.0], [10.0])[1:] == (0.0, math.inf)
    two = window_ratio([30.0, 31.0], [20.0, 21.5], [10.0, 10.0])
    assert two.low < 1.4 < 2.0 < 10 < two.high


def test_host_and_device_that_share_a_clock_must_agree() -> None:
    """The time that passed is accounted for by the host's claim alone, so that only the two claims together tell."""
    reference = Claim(1000.0, 1000.0, walls(1000, 1))
    lying, honest = (Claim(device_us, 1000.0, walls(1000, 2)) for device_us in (400.0, 900.0))
    check = check_clock(reference, lying, EMPTY, one_clock=True)
    assert (check.too_long, check.split, check.contradicts) == (False, True, True)
    assert "1000 us inside a call that is said to take 400 us" in check.words
    assert not check_clock(reference, honest, EMPTY, one_clock=True).contradicts
    assert not check_clock(reference, lying, EMPTY).contradicts, "a GPU may wait for its host"


@pytest.mark.parametrize(("rounds", "decides"), [(1, 1), (2, 1), (4, 1.5), (5, 2), (8, 3), (16, 5.5), (24, 8)])
def test_neither_lucky_nor_disturbed_rounds_decide(rounds: int, decides: float) -> None:
    assert uncontended([float(n) for n in range(rounds, 0, -1)]) == decides
