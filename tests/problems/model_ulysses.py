"""Sequences that are cut back to their length after ranks of equal parts were joined."""

import torch
from on_ranks import all_arguments


def unpad(tensor: torch.Tensor, dim: int, length: int | None, ranks: int, mistake: bool = False) -> torch.Tensor:
    """Mistake: cut to any length that is given."""
    if not length or (length % ranks == 0 and not mistake):
        return tensor
    return tensor.index_select(dim, torch.arange(length))


def check_lengths(number: int) -> None:
    """Calls with a cut, without one, and with a length that looks like a cut and is none."""
    lengths = [all_arguments(number, 4, "tiny", "fp32", call)[1]["unpadded_dim_size"] for call in range(40)]
    assert sum(bool(n) and n % 4 != 0 for n in lengths) > 8
    assert sum(bool(n) and n % 4 == 0 and n < 32 for n in lengths) >= 1  # a smaller multiple of W
    assert sum(not n for n in lengths) > 8


def check_axes(number: int) -> None:
    calls = [all_arguments(number, 4, "tiny", "fp32", call)[1] for call in range(40)]
    assert {(a["seq_dim"], a["head_dim"]) for a in calls} == {(1, 2), (2, 1), (0, 2)}
