"""Summands of the problems that only add up, and how their sums are compared: fewer bits on the way must show.

Of normal numbers of one size, int8 with a scale for every 32 of them is as good as sums that are rounded to bf16 after every
addition, and no tolerance tells the two apart. Real gradients and activations have channels of unlike size. A format with a
floating point does not care; one with common scales loses the small channels beside the large ones.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from pkb.problems.compare import ELEMENT_WORDS, PIECE, TAU, Context, NormGate, element_limit, limits
from pkb.problems.draw import Draw

NEAR = 4.0
"""Of a small column, so many times its rms is what an element's error is held against."""
FEW_ROWS = 16
"""Columns with fewer elements may be small by chance."""
FEWEST = 16
"""One in so many columns make a size of their own; each was drawn for an eighth of them."""
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
    more. How far off an element may be depends on its own column: a sum that is rounded to bf16 after every addition errs by a
    share of it, and among 10^8 elements there is one at six standard deviations. Of a small column a few times its rms counts,
    since it may be small by chance, and never more than the output's: one element that lacks a peer must show there too."""

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
        for alike in _of_like_size(squares):
            relative = float((errors[alike].sum() / squares[alike].sum().clamp(min=1e-300)).sqrt())
            ratio = max(ratio, relative / (self.alike * tau))
        rows = output.numel() // columns
        column_rms, rms = (squares / rows).sqrt(), math.sqrt(float(squares.sum()) / output.numel())
        few = max(1.0, FEW_ROWS / rows)
        scale = column_rms.maximum((column_rms * NEAR * few).clamp(max=rms * math.sqrt(few)))
        for want, error in _by_rows(truth, output):
            off = error.abs_().div_((want.abs() + scale).clamp_(min=1e-300))
            ratio = max(ratio, float(off.max()) / (element_limit(output.numel()) * tau))
        return ratio

    def describe(self) -> str:
        return (
            f"relative Frobenius error at most tau, of the columns of each size (within a factor of 2) alone at most "
            f"{self.alike:g} tau, and no element off by more than {ELEMENT_WORDS} of its size plus its column's rms, or the "
            f"output's if that is larger, but not more than {NEAR:g} times its column's (both count as more where a column has "
            f"fewer than {FEW_ROWS} elements); tau is {limits(TAU)}"
        )


def _of_like_size(squares: torch.Tensor) -> Iterator[torch.Tensor]:
    """Columns within a factor of 2, by their sums of squares. Few columns count with the next larger ones: of those with four
    elements some are far smaller than they were drawn, and are rounded like the larger numbers that they came from."""
    octave = squares.clamp(min=1e-300).log2().div(2).floor()
    sizes, counts = octave.unique(return_counts=True)
    smallest, waiting = -math.inf, 0
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        waiting += count
        if waiting * FEWEST >= len(squares) or size == sizes[-1]:
            yield (octave > smallest) & (octave <= size)
            smallest, waiting = size, 0


def _by_rows(truth: torch.Tensor, output: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Some rows at a time: the truth, and how far the output is from it."""
    columns = output.shape[-1]
    rows = max(1, PIECE // columns)
    for want, got in zip(truth.reshape(-1, columns).split(rows), output.reshape(-1, columns).split(rows), strict=True):
        exact = want.double()
        yield exact, got.double() - exact
