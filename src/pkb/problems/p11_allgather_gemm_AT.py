"""Column-parallel linear layer fed by activations whose features are sharded, computed on transposed operands.

The all-gather + GEMM pattern of Flux, Triton-distributed and ParallelKittens, with the contraction axis sharded. Rank
r holds A_local (M, K_local), its columns of the activations A (M, K = W * K_local), and its own slice B (K, N) of the
weight's columns. It returns A @ B (M, N): the same A on all ranks, another B on each. The reference gathers A
transposed, so that the shards are contiguous rows of A^T, multiplies B^T with it and returns the transpose of the
product as a view; only the values matter. The product is rounded once, at its end.

No tile of the result is complete before all shards are there, but the product is a sum over them: a good kernel
starts with its own block of K, adds each peer's block as it arrives, in a float32 accumulator that lives through all
W of them, and never writes the gathered matrix to memory if it can load tiles from peers.
"""

from typing import Any

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.draw import Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # k: the whole contraction, of which each rank has k // W
    "tiny": {"m": 48, "n": 40, "k": 64},
    "paper": {"m": 1024, "n": 1024, "k": 512},
    "real": {"m": 8192, "n": 3584, "k": 8192},  # Llama-3-70B up projection, TP 8, 8192 tokens
    "odd": {"m": 97, "n": 61, "k": 149},
}


def inputs(draw: Draw) -> dict[str, Any]:
    m, n, k_local = draw.size["m"], draw.size["n"], draw.size["k"] // draw.world_size
    k = k_local * draw.world_size
    return {
        "A_local": draw.normal("A_local", (m, k_local)),
        "B": draw.normal("B", (k, n), scale=k**-0.5),
    }


def solution(A_local: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    world_size = dist.get_world_size()
    m, k_local = A_local.shape
    if B.shape[0] != world_size * k_local:
        raise ValueError(f"B has {B.shape[0]} rows, {world_size} shards of A have {world_size * k_local} columns")
    A_transposed = torch.empty((world_size * k_local, m), dtype=A_local.dtype, device=A_local.device)
    dist.all_gather_into_tensor(A_transposed, A_local.t().contiguous())
    return torch.matmul(B.t(), A_transposed).t()


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    m, n, w = size["m"], size["n"], world_size
    k_local = size["k"] // w
    k = k_local * w
    shard = m * k_local * element_bytes
    return Cost.all_gather(
        w * shard,
        w,
        flops=2 * m * n * k,
        hbm_bytes=(m * k + k * n + m * n) * element_bytes,
    )


def requires(size: Size, world_size: int) -> str | None:
    if size["k"] < world_size:
        return f"a contraction of {size['k']} is too short for {world_size} ranks"
    return None


PROBLEM = Problem(
    id=11,
    name="allgather_gemm_AT",
    source="Flux, Triton-distributed and ParallelKittens, all-gather + GEMM on transposed operands",
    taxonomy=Taxonomy(
        parallelism=("tp",),
        layer="mlp",
        stage=("training-forward", "inference"),
        pattern=("all-gather",),
        system="kernel libraries",
        fusable="transposition, GEMM",
    ),
    sizes=SIZES,
    inputs=inputs,
    reference=solution,
    cost=cost,
    requires=requires,
)
