"""Products whose operands are sharded along the contraction, put together and multiplied once."""

import numpy as np
from on_ranks import Arguments, Array, arrays


def gemm_allreduce(ranks: list[Arguments]) -> list[Array]:
    """Both operands sharded: one product over the whole contraction, which the ranks' slices make up."""
    left, right = np.concatenate(arrays(ranks, "A_local"), axis=1), np.concatenate(arrays(ranks, "B_local"), axis=0)
    return [left @ right] * len(ranks)


def allgather_gemm(ranks: list[Arguments]) -> list[list[Array]]:
    """The left operand sharded, the right one whole and each rank's own."""
    a = np.concatenate(arrays(ranks, "A_local"), axis=1)
    return [[a @ b] for b in arrays(ranks, "B")]
