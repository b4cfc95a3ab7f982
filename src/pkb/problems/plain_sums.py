"""Summands of the problems that only add up, and how their sums are compared: fewer bits on the way must show.

Of normal numbers of one size, int8 with a scale for every 32 of them is as good as sums that are rounded to bf16 after every
addition, and no tolerance tells the two apart. Real gradients and activations have channels of unlike size. A format with a
floating point does not care; one with common scales loses the small channels beside the large ones.
"""

from dataclasses import dataclass, field

import torch

from pkb.problems.compare import PIECE, TAU, Context, NormGate
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
    """The norm gate for the output as a whole, and its Frobenius error for columns of like size by themselves.

    Twice tau is allowed there, since few elements may be of one size: int8 misses it by a factor of 15 and more."""

    gate: NormGate = field(default_factory=NormGate)
    alike: float = 2.0
    """How many tau columns of like size may have. More where a column has four elements, and may be small by chance."""

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        ratio = self.gate(truth, output, context)
        if ratio > 1 or output.dim() == 0 or output.numel() == 0:
            return ratio
        columns = output.shape[-1]
        squares, errors = torch.zeros(2, columns, dtype=torch.float64, device=output.device)
        rows = max(1, PIECE // columns)
        for want, got in zip(
            truth.reshape(-1, columns).split(rows), output.reshape(-1, columns).split(rows), strict=True
        ):
            squares += want.double().square().sum(dim=0)
            errors += (got.double() - want.double()).square().sum(dim=0)
        octave = squares.clamp(min=1e-300).log2().div(2).floor()
        for one in octave.unique():
            alike = octave == one
            error = float((errors[alike].sum() / squares[alike].sum().clamp(min=1e-300)).sqrt())
            ratio = max(ratio, error / (self.alike * TAU[output.dtype]))
        return ratio

    def describe(self) -> str:
        alone = f"of the columns of each size (within a factor of 2) alone it is at most {self.alike:g} tau"
        return f"{self.gate.describe()}; {alone}"
