"""Column-parallel linear layer fed by activations whose features are sharded: an all-gather, then a product.

The all-gather + GEMM pattern with the contraction axis sharded. Rank r holds A_local (M, K_local), its columns of the
activations A (M, K = W * K_local), and its own slice B (K, N) of the weight's columns. It returns A @ B (M, N): the
same A on all ranks, another B on each. The product is rounded once, at its end.

This is not Megatron-LM's sequence-parallel gather, whose shards are rows of A and give finished rows of the result:
here no tile of the result is complete before all shards are there. But the product is a sum over them: a good kernel
starts with its own block of K, adds each peer's block as it arrives, in a float32 accumulator that lives through all
W of them, and saves the copy that interleaves the gathered shards row by row.
"""

import torch
import torch.distributed as dist

from pkb.problems.allgather_gemm import draw_operands, gather_and_multiply_cost, why_too_short
from pkb.problems.base import Alternative, Problem
from pkb.problems.draw import Arguments, Draw
from pkb.problems.symmetric_ops import world_name
from pkb.types.taxonomy import Taxonomy

SIZES = {  # k: the whole contraction, of which each rank has k // W
    "tiny": {"m": 40, "n": 48, "k": 64},
    "paper": {"m": 1024, "n": 1024, "k": 512},
    "real": {"m": 8192, "n": 7168, "k": 8192},  # Llama-3-70B gate and up projection in one, TP 8, 8192 tokens
    "odd": {"m": 103, "n": 67, "k": 151},
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
    shards = torch.empty((world_size * m, k_local), dtype=A_local.dtype, device=A_local.device)
    dist.all_gather_into_tensor(shards, A_local.contiguous())
    A = torch.cat(shards.chunk(world_size), dim=1)
    return torch.matmul(A, B)


def baseline(A_local: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """Shards travel transposed, so that they join without a copy, and the product reads them as they lie."""
    world_size = dist.get_world_size()
    m, k_local = A_local.shape
    transposed = A_local.new_empty((world_size * k_local, m))
    dist.all_gather_into_tensor(transposed, A_local.t().contiguous())
    return torch.matmul(transposed.t(), B)


def stock_symmetric(A_local: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """Pieces of the gather overlap with pieces of the product."""
    _, (product,) = torch.ops.symm_mem.fused_all_gather_matmul(
        A_local.contiguous(), [B], gather_dim=1, group_name=world_name(), return_A=False
    )
    return product


PROBLEM = Problem(
    id=12,
    name="allgather_gemm",
    source="column-parallel linear layer with feature-sharded input (Flux, Triton-distributed)",
    taxonomy=Taxonomy(
        parallelism=("tp",),
        layer="mlp",
        stage=("training-forward", "inference"),
        pattern=("all-gather",),
        system="kernel libraries",
        fusable="GEMM",
    ),
    sizes=SIZES,
    inputs=draw_operands,
    published=published,
    reference=solution,
    stock_symmetric=stock_symmetric,
    baseline=baseline,
    reference_faster_at=("real",),
    tried=(Alternative("a product for each shard as it lies, added up in place", us=14114),),
    cost=gather_and_multiply_cost,
    requires=why_too_short,
)
