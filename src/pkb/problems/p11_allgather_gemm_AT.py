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

import torch
import torch.distributed as dist

from pkb.problems.allgather_gemm import draw_operands, gather_and_multiply_cost, why_too_short
from pkb.problems.base import Problem
from pkb.problems.draw import Arguments, Draw
from pkb.types.taxonomy import Taxonomy

SIZES = {  # k: the whole contraction, of which each rank has k // W
    "tiny": {"m": 48, "n": 40, "k": 64},
    "paper": {"m": 1024, "n": 1024, "k": 512},
    "real": {"m": 8192, "n": 3584, "k": 8192},  # Llama-3-70B up projection, TP 8, 8192 tokens
    "odd": {"m": 97, "n": 61, "k": 149},
}


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """B is not scaled."""
    k = draw.size["k"] // draw.world_size * draw.world_size
    return {"B": draw.normal("B, published", (k, draw.size["n"]))}


def solution(A_local: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    world_size = dist.get_world_size()
    m, k_local = A_local.shape
    if B.shape[0] != world_size * k_local:
        raise ValueError(f"B has {B.shape[0]} rows, {world_size} shards of A have {world_size * k_local} columns")
    A_transposed = torch.empty((world_size * k_local, m), dtype=A_local.dtype, device=A_local.device)
    dist.all_gather_into_tensor(A_transposed, A_local.t().contiguous())
    return torch.matmul(B.t(), A_transposed).t()


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
    inputs=draw_operands,
    published=published,
    reference=solution,
    baseline_reason="one local transposition, one all-gather, one GEMM that reads what came as it lies",
    cost=gather_and_multiply_cost,
    requires=why_too_short,
)
