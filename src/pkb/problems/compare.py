"""How one output is compared with the truth. Every rule answers with a ratio: error over tolerance, at most 1 passes.

A ratio rather than a yes lets `pkb lint` say how far the nearest null candidate is from passing, and how far an honest
computation in another order is from failing.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

from pkb.problems.draw import Value

# Frobenius tolerance of the norm gate. An honest bf16 sum over 8 ranks lands at 4e-3, a float32 one at 2.5e-7.
TAU: Mapping[torch.dtype, float] = {
    torch.bfloat16: 1e-2,
    torch.float16: 1.5e-3,
    torch.float32: 1e-5,
    torch.float64: 1e-12,
}


@dataclass(frozen=True)
class Context:
    """What a rule may know about the call beside the two outputs."""

    arguments: Mapping[str, Value]
    rank: int
    world_size: int
    dtype: torch.dtype


Rule = Callable[[torch.Tensor, torch.Tensor, Context], float]
"""One that has `describe` says itself what it asks for; of others the docstring does (`rule_words`)."""

PIECE = 1 << 22
"""Elements that a rule looks at together. It widens them to float64 and needs several temporaries of that size, and at
production sizes eight ranks that share a GPU compare a gigabyte each at the same time."""


def pieces(*tensors: torch.Tensor, whole: int = 1) -> Iterator[tuple[torch.Tensor, ...]]:
    """Tensors of one shape as the same flat pieces in row-major order; what is copied, if at all, is one piece at a time.
    Runs of so many elements (a divisor of the last dimension) stay whole."""
    first = tensors[0]
    if first.numel() <= PIECE:
        yield tuple(tensor.reshape(-1) for tensor in tensors)
    elif all(tensor.is_contiguous() for tensor in tensors):
        step = max(whole, PIECE - PIECE % whole)
        yield from zip(*(tensor.view(-1).split(step) for tensor in tensors), strict=True)
    elif first.dim() == 1:
        yield from pieces(*(tensor.contiguous() for tensor in tensors), whole=whole)
    else:
        rows = max(1, PIECE * first.shape[0] // first.numel())
        for parts in zip(*(tensor.split(rows) for tensor in tensors), strict=True):
            yield from pieces(*(part[0] if rows == 1 else part for part in parts), whole=whole)


@dataclass(frozen=True)
class Exact:
    """Every value equal; the sign of a zero and the payload of a NaN do not matter, since no reference specifies them."""

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        for want, got in pieces(truth, output):
            want = want.to(got.dtype)
            same = want == got
            if got.is_floating_point():
                same |= want.isnan() & got.isnan()
            if not bool(same.all()):
                return math.inf
        return 0.0

    def describe(self) -> str:
        return "every value equal; the sign of a zero and the payload of a NaN do not matter"


ELEMENT_WORDS = "1.5 sqrt(2 ln n) tau, n being the number of elements (4 tau if that is more),"


def element_limit(count: int) -> float:
    """How many tau one of so many elements may be off. The largest of n normal errors lies near sqrt(2 ln n) standard
    deviations, and rounding errs more where partial sums are large: with 4 tau at any size, honest kernels had up to 0.96 of
    the tolerance at `real` on an H200, and now have half of it at most."""
    return max(4.0, 1.5 * math.sqrt(2 * math.log(max(count, 2))))


@dataclass(frozen=True)
class NormGate:
    """Relative Frobenius error at most tau, and no single element off by more than some tau of its size plus the output's rms.

    Element-wise relative tolerance alone is wrong for sums of random terms: elements near zero carry the rounding error of
    their large partial sums. How many tau depends on how many elements there are (`element_limit`). `tau` replaces the default
    of a dtype where the problem says why it needs another.
    """

    tau: Mapping[torch.dtype, float] = field(default_factory=dict)
    by_row: bool = False
    """The rms is that of the element's row, the last dimension, where that is larger than the output's. In a causal attention
    the rows that see few keys are many times larger than most, and a kernel that rounds weights for tensor cores, as all
    fast ones do, errs by a share of its row."""

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        if output.numel() == 0:
            return 0.0
        row = output.shape[-1] if self.by_row and output.dim() else None
        tau = self.tau[output.dtype] if output.dtype in self.tau else TAU[output.dtype]
        # Twice through, since the rms must be known; what fits into one piece is computed once.
        once = [*_errors(truth, output, row)] if output.numel() <= PIECE else None
        count, squares, error_squares = 0, 0.0, 0.0
        for found in once or _errors(truth, output, row):
            if found is None:
                return math.inf
            want, error, _ = found
            if not want.numel():  # nothing but infinities and NaN, at the right places
                continue
            count += want.numel()
            squares += float(want.dot(want))
            error_squares += float(error.dot(error))
        if count == 0:
            return 0.0
        rms = math.sqrt(squares / count)
        worst = 0.0
        for found in once or _errors(truth, output, row):
            assert found is not None
            want, error, scale = found
            if rms == 0 and bool(error.any()):
                return math.inf
            if rms and error.numel():
                size = want.abs().add_(rms if scale is None else scale.clamp(min=rms))
                worst = max(worst, float(error.abs_().div_(size).max()))
        if rms == 0:
            return 0.0
        frobenius = math.sqrt(error_squares / count) / rms
        if not (math.isfinite(frobenius) and math.isfinite(worst)):
            return math.inf
        return max(frobenius / tau, worst / (element_limit(count) * tau))

    def describe(self) -> str:
        rms = "its row's or the output's rms, whichever is larger" if self.by_row else "the output's rms"
        return (
            f"relative Frobenius error at most tau, and no element off by more than {ELEMENT_WORDS} of its "
            f"size plus {rms}; tau is {limits(dict(TAU) | dict(self.tau))}"
        )


def _doubles(
    truth: torch.Tensor, output: torch.Tensor, *, whole: int = 1
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for want, got in pieces(truth, output, whole=whole):
        yield want.double(), got.double()


def _errors(
    truth: torch.Tensor, output: torch.Tensor, row: int | None
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None] | None]:
    """The finite values of each piece, how far the output is from them, and the rms of the row of so many elements that each
    is in, if that is asked for. None where infinities and NaN do not stand at the same places with the same sign."""
    for want, got in _doubles(truth, output, whole=row or 1):
        error = got - want
        scale = None
        if row is not None:
            squares = want.view(-1, row).square().nan_to_num(nan=0.0, posinf=0.0)
            scale = squares.mean(dim=1).sqrt().repeat_interleave(row)
        if not math.isfinite(float(error.sum())):
            special = ~torch.isfinite(want)
            same = (want == got) | (want.isnan() & got.isnan())
            if not bool((special == ~torch.isfinite(got)).all()) or not bool((same | ~special).all()):
                yield None
                return
            want, error = want[~special], error[~special]
            scale = None if scale is None else scale[~special]
        yield want, error, scale


@dataclass(frozen=True)
class Close:
    """|output - truth| <= atol + rtol |truth|, element by element, with limits per dtype of the output."""

    rtol: Mapping[torch.dtype, float]
    atol: Mapping[torch.dtype, float] = field(default_factory=dict)

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        if output.numel() == 0:
            return 0.0
        worst = 0.0
        for want, got in _doubles(truth, output):
            same = (want == got) | (want.isnan() & got.isnan())
            limit = self.atol.get(output.dtype, 0.0) + self.rtol[output.dtype] * want.abs()
            ratio = torch.where(same, 0.0, (got - want).abs() / limit)
            worst = max(worst, float(ratio.nan_to_num(nan=math.inf, posinf=math.inf).max()))
        return worst if math.isfinite(worst) else math.inf

    def describe(self) -> str:
        absolute = f"; atol is {limits(self.atol)}" if self.atol else ""
        within = "atol plus rtol of the truth" if self.atol else "rtol of the truth"
        return f"every element within {within}; rtol is {limits(self.rtol)}{absolute}"


@dataclass(frozen=True)
class Upstream:
    """The published benchmark's test, for comparison with its figures only: all-close in float32 with 1e-2."""

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        limit = {torch.float32: 1e-2}
        close = Close(rtol=limit, atol=limit)
        return max(close(want.float(), got.float(), context) for want, got in pieces(truth, output))

    def describe(self) -> str:
        return "torch.allclose in float32 with rtol = atol = 0.01"


def rule_words(rule: Rule) -> str:
    """A rule as `pkb show` and the prompts tell it."""
    describe = getattr(rule, "describe", None)
    if describe is not None:
        return str(describe())
    text = inspect.getdoc(rule if inspect.isroutine(rule) else type(rule)) or "compared by a rule of its own"
    return " ".join(text.partition("\n\n")[0].split())


_SHORT = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.float64: "fp64"}


def limits(by_dtype: Mapping[torch.dtype, float]) -> str:
    return ", ".join(
        f"{limit:g} ({_SHORT.get(dtype, str(dtype).removeprefix('torch.'))})" for dtype, limit in by_dtype.items()
    )
