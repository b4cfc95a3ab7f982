"""Comparison rules on crafted cases: each accepts honest rounding and refuses what only looks near."""

import functools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pkb.problems import compare
from pkb.problems.compare import TAU, Close, Context, Exact, NormGate, Rule, Upstream

INF, NAN = math.inf, math.nan
FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
CLOSE = Close(rtol=dict.fromkeys(FLOATS, 1e-2), atol=dict.fromkeys(FLOATS, 1e-3))
RULES: dict[str, Rule] = {"norm": NormGate(), "exact": Exact(), "close": CLOSE, "upstream": Upstream()}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
every_tolerance = pytest.mark.parametrize("rule", [NormGate(), CLOSE, Upstream()], ids=["norm", "close", "upstream"])


def ratio(rule: Rule, truth: torch.Tensor, output: torch.Tensor) -> float:
    return rule(truth, output, Context(arguments={}, rank=0, world_size=2, dtype=output.dtype))


def lists(rule: Rule, truth: list[float], output: list[float], dtype: torch.dtype = torch.float32) -> float:
    return ratio(rule, torch.tensor(truth, dtype=torch.float64), torch.tensor(output, dtype=dtype))


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@every_rule
@pytest.mark.parametrize("dtype", FLOATS)
def test_equal_is_zero(rule: Rule, dtype: torch.dtype) -> None:
    values = normal(33, 7).to(dtype)
    assert ratio(rule, values.double(), values) == 0
    assert ratio(rule, values, values.clone()) == 0


@every_rule
def test_empty_and_scalar(rule: Rule) -> None:
    assert ratio(rule, torch.zeros(0, 3), torch.zeros(0, 3)) == 0
    assert ratio(rule, torch.tensor(2.0), torch.tensor(2.0)) == 0
    assert ratio(rule, torch.tensor(2.0), torch.tensor(3.0)) > 1


@every_rule
@pytest.mark.parametrize(
    ("truth", "output"),
    [
        ([1, 2, 3], [1, NAN, 3]),
        ([1, 2, 3], [1, INF, 3]),
        ([1, 2, 3], [1, -INF, 3]),
        ([1, INF, 3], [1, -INF, 3]),
        ([1, INF, 3], [1, 3e38, 3]),
        ([1, INF, 3], [1, NAN, 3]),
        ([1, NAN, 3], [1, INF, 3]),
        ([1, NAN, 3], [1, 0, 3]),
        ([NAN, 2, 3], [2, NAN, 3]),
        ([INF, -INF], [-INF, INF]),
        ([NAN, NAN], [0, 0]),
        ([0, 0, 0], [0, 1, 0]),
        ([0, 0, 0], [NAN, 0, 0]),
        ([1, 2, 3], [NAN, NAN, NAN]),
        ([1, 2, 3], [INF, INF, INF]),
        ([1, 2, 3], [-1, -2, -3]),
    ],
)
def test_special_values_in_the_wrong_place_fail(rule: Rule, truth: list[float], output: list[float]) -> None:
    """A NaN compares false with everything, so a rule written as `error > limit` would let all of these pass."""
    assert lists(rule, truth, output) > 1


@every_rule
@pytest.mark.parametrize(
    "values", [[INF, 1, -INF, 2], [NAN, 1, 2, 3], [INF, -INF, NAN], [NAN], [0, 0, 0], [-0.0, 0.0], [5e-324, 1e-300]]
)
def test_special_values_in_the_right_place_pass(rule: Rule, values: list[float]) -> None:
    assert lists(rule, values, values, torch.float64) == 0


@every_rule
def test_the_sign_of_zero_does_not_count(rule: Rule) -> None:
    assert lists(rule, [0.0, 1.0, -0.0], [-0.0, 1.0, 0.0]) == 0


def test_specials_do_not_hide_a_wrong_neighbour() -> None:
    assert lists(NormGate(), [INF, 1, 2, 3], [INF, 1, 2, 3.2]) > 1
    assert lists(CLOSE, [NAN, 1, 2, 3], [NAN, 1, 2, 3.2]) > 1


# -- exact ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_exact_on_integers(dtype: torch.dtype) -> None:
    truth = torch.tensor([0, 1, 1, 0]).to(dtype)
    assert ratio(Exact(), truth, truth.clone()) == 0
    assert ratio(Exact(), truth, torch.tensor([0, 1, 1, 1]).to(dtype)) == INF


def test_exact_sees_the_last_bit() -> None:
    large = torch.tensor([2**62 + 1])
    assert ratio(Exact(), large, large - 1) == INF  # would be equal as float64
    one = torch.tensor([1.0])
    assert ratio(Exact(), one, torch.nextafter(one, torch.tensor([2.0]))) == INF


def test_exact_takes_any_nan_for_another() -> None:
    payload = torch.tensor([0x7FC00001, 0xFFC00000 - (1 << 32)], dtype=torch.int32).view(torch.float32)
    assert payload.isnan().all()
    assert ratio(Exact(), torch.tensor([NAN, NAN]), payload) == 0


# -- tolerances -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_norm_gate_at_its_limit(dtype: torch.dtype) -> None:
    """The same relative error everywhere is a Frobenius error of that size: one tau is ratio 1."""
    truth = torch.full((1000,), 8.0, dtype=torch.float64)
    wide = NormGate(tau={torch.float64: TAU[dtype]})
    assert ratio(wide, truth, truth * (1 + 0.99 * TAU[dtype])) == pytest.approx(0.99, rel=1e-3)
    assert ratio(wide, truth, truth * (1 + 1.01 * TAU[dtype])) == pytest.approx(1.01, rel=1e-3)


@pytest.mark.parametrize("dtype", FLOATS)
def test_honest_rounding_passes_with_room(dtype: torch.dtype) -> None:
    """Sums of 8 ranks' terms in the dtype itself, another order than the truth's."""
    terms = normal(8, 64, 64).to(dtype)
    total = torch.zeros(64, 64, dtype=dtype)
    for term in terms.flip(0):
        total += term
    assert ratio(NormGate(), terms.double().sum(0), total) < 0.7


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_narrower_dtype_does_not_pass_for_a_wider(dtype: torch.dtype) -> None:
    lower = {torch.float16: torch.float8_e4m3fn, torch.float32: torch.bfloat16, torch.float64: torch.float32}[dtype]
    truth = normal(64, 64)
    assert ratio(NormGate(), truth, truth.to(lower).to(dtype)) > 1


def test_one_bad_element_of_a_million() -> None:
    """The Frobenius norm alone does not see it: this is what the element gate is for."""
    truth = normal(1000, 1000)
    output = truth.clone().bfloat16()
    output[500, 500] = truth[500, 500] + 1.0
    assert float((output.double() - truth).norm() / truth.norm()) < TAU[torch.bfloat16]
    assert ratio(NormGate(), truth, output) > 1


def test_rounding_at_every_hop_takes_half_of_the_tolerance_however_many_elements() -> None:
    for count in (1 << 10, 1 << 16, 1 << 22):
        terms = [normal(count, seed=seed).bfloat16() for seed in range(8)]
        total = functools.reduce(torch.add, terms)
        assert ratio(NormGate(), torch.stack(terms).double().sum(0), total) < 0.5


def test_a_missing_row_and_a_missing_peer() -> None:
    terms = normal(8, 256, 16)
    truth, without_one = terms.sum(0), terms[:7].sum(0)
    assert ratio(NormGate(), truth, without_one.bfloat16()) > 10
    short = truth.clone()
    short[255] = 0
    assert ratio(NormGate(), truth, short.bfloat16()) > 1


def test_rows_of_a_causal_attention_are_measured_by_themselves() -> None:
    """Weights rounded for tensor cores, in rows of which the first see few keys, within an output of mostly small values."""
    source = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(32, 16, 128, generator=source).bfloat16().double() for _ in range(3))
    scores = q @ (1.8 * k).transpose(1, 2) * 128**-0.5
    scores.masked_fill_(torch.ones(16, 16, dtype=torch.bool).triu(1), -INF)
    weights = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    sums = weights.sum(dim=-1, keepdim=True)
    rest = 0.01 * torch.randn(32, 2000, 128, generator=source).double()  # rows that see thousands of keys
    truth = torch.cat([weights @ v / sums, rest], dim=1)
    output = torch.cat([weights.bfloat16().double() @ v / sums, rest], dim=1).bfloat16()
    by_row = NormGate(by_row=True)
    assert ratio(NormGate(), truth, output) > 2 * ratio(by_row, truth, output)
    assert ratio(by_row, truth, output) < 0.5
    for wrong in (output.flip(1), output.roll(1, 2), torch.zeros_like(output), output * 1.05):
        assert ratio(by_row, truth, wrong) > 1
    output[3, 100, 7] += 0.3 * truth[3, 100].square().mean().sqrt() + 0.2 * truth.square().mean().sqrt()
    assert ratio(by_row, truth, output) > 1, "one element of a small row"


def test_rows_stay_whole_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = normal(40, 24) * torch.logspace(0, 2, 40).unsqueeze(1)
    output = truth.clone()
    output[38, 5] += 0.1 * truth[38].square().mean().sqrt()  # a large row: its rms decides, not the output's
    by_row, plain = (NormGate(tau={torch.float64: 1e-2}, by_row=rows) for rows in (True, False))
    at_once = ratio(by_row, truth, output)
    rms = truth[38].square().mean().sqrt()
    assert at_once == pytest.approx(
        float(0.1 * rms / (compare.element_limit(40 * 24) * 0.01 * (truth[38, 5].abs() + rms)))
    )
    assert ratio(plain, truth, output) > 1.1 * at_once
    for piece in (100, 10):  # some rows, less than a row
        monkeypatch.setattr(compare, "PIECE", piece)
        assert ratio(by_row, truth, output) == pytest.approx(at_once)
        assert ratio(by_row, truth.T.contiguous().T, output) == pytest.approx(at_once)
    assert ratio(NormGate(by_row=True), torch.tensor(1.0), torch.tensor(1.0)) == 0, "a number is no row"


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1.0, 1e6, 1e30])
def test_norm_gate_does_not_depend_on_the_scale(scale: float) -> None:
    truth = normal(50, 50)
    output = truth * (1 + 3e-3 * normal(50, 50, seed=1))
    rule = NormGate(tau={torch.float64: 1e-2})
    assert ratio(rule, truth * scale, output * scale) == pytest.approx(ratio(rule, truth, output), rel=1e-6)


def test_zeros_have_no_room_at_all() -> None:
    """Nothing to be relative to: an output of zeros must be zeros."""
    assert lists(NormGate(), [0, 0], [0, 1e-30]) == INF
    assert lists(NormGate(), [1, 0], [1, 1e-6]) < 1


def test_a_tau_of_its_own_replaces_the_default() -> None:
    assert lists(NormGate(tau={torch.float32: 0.5}), [1, 1], [1.4, 1.4]) == pytest.approx(0.8)
    assert lists(NormGate(tau={torch.bfloat16: 0.5}), [1, 1], [1.4, 1.4]) > 1


def test_a_tau_for_a_dtype_without_default() -> None:
    eight_bits = torch.ones(4).to(torch.float8_e4m3fn)
    assert ratio(NormGate(tau={torch.float8_e4m3fn: 0.1}), torch.ones(4), eight_bits) == 0


def test_close_by_hand() -> None:
    rule = Close(rtol={torch.float64: 0.1}, atol={torch.float64: 1.0})
    assert lists(rule, [10, 0], [11, 0], torch.float64) == pytest.approx(0.5)  # 1 of 1 + 0.1 * 10
    assert lists(rule, [10, 0], [10, 1], torch.float64) == pytest.approx(1.0)
    assert lists(rule, [-10, 0], [-13, 0], torch.float64) == pytest.approx(1.5)
    assert lists(Close(rtol={torch.float64: 0.1}), [0.0, 1], [1e-300, 1], torch.float64) == INF


def test_upstream_is_all_close_in_float32() -> None:
    assert lists(Upstream(), [1.0], [1.019], torch.float64) < 1
    assert lists(Upstream(), [1.0], [1.021], torch.float64) > 1
    truth = torch.tensor([1, 100], dtype=torch.int64)
    assert ratio(Upstream(), truth, torch.tensor([1, 102])) > 1
    assert ratio(Upstream(), truth, torch.tensor([1, 101])) < 1, "integers are not exact there: a weakness, kept"


# -- properties -------------------------------------------------------------------------------------------------------


@every_tolerance
@given(seed=st.integers(0, 2**31), small=st.floats(1e-6, 10.0), factor=st.floats(1.001, 1e3))
@settings(max_examples=40, deadline=None)
def test_a_larger_error_has_a_larger_ratio(rule: Rule, seed: int, small: float, factor: float) -> None:
    truth, error = normal(20, seed=seed), normal(20, seed=seed + 1)
    less = ratio(rule, truth, truth + small * error)
    more = ratio(rule, truth, truth + small * factor * error)
    assert less <= more * (1 + 1e-6)
    assert more > 0


@every_rule
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=12),
    st.lists(st.floats(width=32), min_size=1, max_size=12),
)
@settings(max_examples=150, deadline=None)
def test_the_ratio_is_never_nan_or_negative(rule: Rule, truth: list[float], output: list[float]) -> None:
    """`ratio > 1` is false for NaN: a rule that could answer NaN would pass what it could not compare."""
    n = min(len(truth), len(output))
    answer = lists(rule, truth[:n], output[:n])
    assert not math.isnan(answer)
    assert answer >= 0


@every_rule
@given(st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_elements_does_not_matter(rule: Rule, values: list[float], source: object) -> None:
    output = [value * 1.001 for value in values]
    backwards = lists(rule, values[::-1], output[::-1])
    assert lists(rule, values, output) == pytest.approx(backwards, rel=1e-9)
