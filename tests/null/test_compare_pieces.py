"""Rules go through large outputs piece by piece; the answer is that of the formula over the whole tensors."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch

from pkb.problems import compare
from pkb.problems.compare import TAU, Close, Context, Exact, NormGate, Rule, Upstream, pieces

INF, NAN = math.inf, math.nan
SMALL = 64
FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
RTOL, ATOL = 1e-2, 1e-3


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "PIECE", SMALL)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ratio(rule: Rule, truth: torch.Tensor, output: torch.Tensor) -> float:
    return rule(truth, output, Context(arguments={}, rank=0, world_size=2, dtype=output.dtype))


# -- over whole tensors, as one would write it down -------------------------------------------------------------------


def whole_norm_gate(truth: torch.Tensor, output: torch.Tensor) -> float:
    want, got, tau = truth.double(), output.double(), TAU[output.dtype]
    finite = want.isfinite()
    if not torch.equal(finite, got.isfinite()) or not torch.equal(
        want[~finite].nan_to_num(nan=0.5), got[~finite].nan_to_num(nan=0.5)
    ):
        return INF
    want, got = want[finite], got[finite]
    if want.numel() == 0:
        return 0.0
    error, rms = (got - want).abs(), want.square().mean().sqrt()
    if rms == 0:
        return INF if error.any() else 0.0
    most = max(4.0, 1.5 * math.sqrt(2 * math.log(want.numel()))) * tau if want.numel() > 1 else 4 * tau
    return max(float(error.square().mean().sqrt() / rms) / tau, float((error / (want.abs() + rms)).max()) / most)


def whole_close(truth: torch.Tensor, output: torch.Tensor) -> float:
    want, got = truth.double(), output.double()
    same = (want == got) | (want.isnan() & got.isnan())
    worst = torch.where(same, 0.0, (got - want).abs() / (ATOL + RTOL * want.abs()))
    return float(worst.nan_to_num(nan=INF, posinf=INF).max()) if worst.isfinite().all() else INF


def whole_exact(truth: torch.Tensor, output: torch.Tensor) -> float:
    return 0.0 if torch.allclose(truth.to(output.dtype), output, rtol=0, atol=0, equal_nan=True) else INF


CLOSE = Close(rtol=dict.fromkeys(FLOATS, RTOL), atol=dict.fromkeys(FLOATS, ATOL))
Formula = Callable[[torch.Tensor, torch.Tensor], float]
RULES: dict[str, tuple[Rule, Formula]] = {
    "norm": (NormGate(), whole_norm_gate),
    "close": (CLOSE, whole_close),
    "exact": (Exact(), whole_exact),
}
every_rule = pytest.mark.parametrize(("rule", "formula"), RULES.values(), ids=RULES.keys())


def same(rule: Rule, formula: Formula, truth: torch.Tensor, output: torch.Tensor) -> None:
    expected = formula(truth, output)
    assert ratio(rule, truth, output) == (expected if expected == INF else pytest.approx(expected, rel=1e-12, abs=0))


@every_rule
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(SMALL,), (SMALL + 1,), (7, 3, 50), (1, 1000), (1000, 1)])
def test_as_over_the_whole(rule: Rule, formula: Formula, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    truth = normal(*shape)
    same(rule, formula, truth, truth.to(dtype))
    same(rule, formula, truth, (truth + 1e-3 * normal(*shape, seed=1)).to(dtype))


@every_rule
def test_an_error_in_the_last_piece_counts(rule: Rule, formula: Formula) -> None:
    truth = normal(10 * SMALL + 1)
    output = truth.clone()
    output[-1] += 10.0
    same(rule, formula, truth, output)
    assert ratio(rule, truth, output) > 1


def test_each_piece_is_measured_by_the_size_of_all() -> None:
    """Zeros in one piece and large values in another: an rms of its own would refuse what is noise beside the rest."""
    truth = torch.cat([torch.zeros(SMALL), 1e3 * torch.ones(SMALL)]).double()
    output = truth.clone()
    output[:SMALL] = 1e-3
    same(NormGate(), whole_norm_gate, truth, output.float())
    assert ratio(NormGate(), truth, output.float()) < 1


@every_rule
@pytest.mark.parametrize(("one", "other"), list(itertools.product((NAN, INF, -INF, 1.0), repeat=2)))
@pytest.mark.parametrize("place", [3, 3 * SMALL, 5 * SMALL - 1])
def test_specials_anywhere(rule: Rule, formula: Formula, one: float, other: float, place: int) -> None:
    truth = normal(5 * SMALL)
    truth[SMALL : 2 * SMALL] = NAN  # a piece of nothing else
    output = truth.clone()
    truth[place], output[place] = one, other
    same(rule, formula, truth, output)
    same(rule, formula, truth, output.float())


@pytest.mark.parametrize("special", [NAN, INF])
def test_specials_only(special: float) -> None:
    truth = torch.full((3 * SMALL,), special).double()
    assert ratio(NormGate(), truth, truth.float()) == 0


def test_zeros_only() -> None:
    truth = torch.zeros(3 * SMALL).double()
    output = truth.clone()
    assert ratio(NormGate(), truth, output) == 0
    output[-1] = 1e-300
    assert ratio(NormGate(), truth, output) == INF


@every_rule
def test_not_contiguous(rule: Rule, formula: Formula) -> None:
    truth = normal(30, 20, 5).permute(2, 0, 1)
    sliced = normal(5, 30, 40, seed=1)[:, :, ::2]
    noisy = (truth + 1e-3 * normal(5, 30, 20, seed=2)).contiguous()
    for output in (noisy, noisy.transpose(0, 2).contiguous().transpose(0, 2), truth + 1e-3 * sliced, truth):
        same(rule, formula, truth, output)
        same(rule, formula, truth.contiguous(), output)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64])
def test_exact_in_other_dtypes(dtype: torch.dtype) -> None:
    truth = (normal(5 * SMALL) > 0).to(dtype)
    output = truth.clone()
    assert ratio(Exact(), truth, output) == 0
    output[-1] = 1 - int(truth[-1].real)
    assert ratio(Exact(), truth, output) == INF


def test_upstream() -> None:
    truth = normal(5 * SMALL)
    output = truth + 1e-3 * normal(5 * SMALL, seed=1)
    want, got = truth.float().double(), output.float().double()
    expected = float(((got - want).abs() / (1e-2 + 1e-2 * want.abs())).max())
    assert ratio(Upstream(), truth, output) == pytest.approx(expected, rel=1e-12)
    assert ratio(Upstream(), truth[:0], output[:0]) == 0


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(1000),
        torch.arange(1000).reshape(10, 100).t(),
        torch.arange(1000).reshape(1, 1, 1000)[:, :, ::2],
        torch.arange(1200).reshape(2, 3, 200).transpose(0, 1),
        torch.arange(1200).reshape(2, 300, 2).transpose(0, 1),
        torch.tensor(3),
        torch.zeros(0, 5),
    ],
)
def test_pieces_are_all_elements_in_order(tensor: torch.Tensor) -> None:
    parts = [one for one, _ in pieces(tensor, tensor.clone())]
    assert torch.equal(torch.cat(parts), tensor.reshape(-1))
    assert max(part.numel() for part in parts) <= SMALL
