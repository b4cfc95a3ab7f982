"""Summands of the problems that only add up, and how their sums are compared: fewer bits on the way must show.

Of normal numbers of one size, int8 with a scale for every 32 of them is as good as sums that are rounded to bf16 after every
addition, and no tolerance tells the two apart. Real gradients and activations have channels of unlike size. A format with a
floating point does not care; one with common scales loses the small channels beside the large ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from pkb.problems.compare import ELEMENT_WORDS, PIECE, TAU, Context, NormGate, element_limit, limits
from pkb.problems.draw import Draw

OCTAVES = 8
"""Columns are scaled by powers of two, down to 2^-7: exact in every dtype."""


def draw_summand(draw: Draw, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """This rank's normal numbers. How large a column is, is the same on all ranks."""
    octave = draw.integers(f"{name}: octaves", shape[-1:], 0, OCTAVES, key="all")
    # A table, since exp2 on shapes alone (how much an argument takes) imports torch's compiler: seconds, in every evaluation.
    scales = torch.tensor([2.0**-n for n in range(OCTAVES)], dtype=draw.dtype, device=octave.device)
    return draw.normal(name, shape).mul_(scales[octave])


@dataclass(frozen=True)
class SumGate:
    """Relative Frobenius error of the output as a whole, and of columns of like size by themselves; and no element far off.

    Twice tau is allowed for columns of like size, since few elements may be of one size: int8 misses it by a factor of 15 and
    more. How far off an element may be depends on its own column where that is larger than most: a sum that is rounded to
    bf16 after every addition errs by a share of its column, and among 10^8 elements there is one at six standard deviations."""

    alike: float = 2.0
    """How many tau columns of like size may have. More where a column has four elements, and may be small by chance."""

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        if output.dim() == 0 or output.numel() == 0:
            return NormGate()(truth, output, context)
        tau, columns = TAU[output.dtype], output.shape[-1]
        squares, errors = torch.zeros(2, columns, dtype=torch.float64, device=output.device)
        for want, error in _by_rows(truth, output):
            squares += want.square().sum(dim=0)
            errors += error.square().sum(dim=0)
        if not bool(
            (squares + errors).isfinite().all()
        ):  # which infinities and NaN may stand where is the other rule's to say
            return NormGate()(truth, output, context)
        ratio = float((errors.sum() / squares.sum().clamp(min=1e-300)).sqrt()) / tau
        octave = squares.clamp(min=1e-300).log2().div(2).floor()
        for one in octave.unique():
            alike = octave == one
            relative = float((errors[alike].sum() / squares[alike].sum().clamp(min=1e-300)).sqrt())
            ratio = max(ratio, relative / (self.alike * tau))
        scale = (squares / (output.numel() // columns)).clamp(min=float(squares.sum()) / output.numel()).sqrt()
        for want, error in _by_rows(truth, output):
            off = error.abs_().div_((want.abs() + scale).clamp_(min=1e-300))
            ratio = max(ratio, float(off.max()) / (element_limit(output.numel()) * tau))
        return ratio

    def describe(self) -> str:
        return (
            f"relative Frobenius error at most tau, of the columns of each size (within a factor of 2) alone at most "
            f"{self.alike:g} tau, and no element off by more than {ELEMENT_WORDS} of its size plus its column's or the "
            f"output's rms, whichever is larger; tau is {limits(TAU)}"
        )


def _by_rows(truth: torch.Tensor, output: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Some rows at a time: the truth, and how far the output is from it."""
    columns = output.shape[-1]
    rows = max(1, PIECE // columns)
    for want, got in zip(truth.reshape(-1, columns).split(rows), output.reshape(-1, columns).split(rows), strict=True):
        exact = want.double()
        yield exact, got.double() - exact
