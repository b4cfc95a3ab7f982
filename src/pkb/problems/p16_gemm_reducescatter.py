"""Row-parallel linear layer with its output sharded by rows: a product on every rank, then a reduce-scatter.

Megatron-LM's RowParallelLinear with sequence parallelism (attention output and MLP down projection). Rank r
holds A_local (M, K_local) and B_local (K_local, N), its slices of a contraction of length K_local * W;
afterwards it holds rows [r * M/W, (r + 1) * M/W) of the sum of all W products. The per-rank product is rounded
to the dtype before it is communicated.

A good kernel computes the rows that belong to other ranks first and sends each finished tile to its owner, into
a slot for the source rank, so that the transfer hides under the rest of the product; the owner adds the W tiles
in one fixed order. M/W may be smaller than a tile of the product, and a tile must not straddle two owners
unnoticed.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.symmetric_ops import world_name
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # m is rounded up to a multiple of W; k is the whole contraction, of which each rank has k // W
    "tiny": {"m": 64, "n": 64, "k": 64},
    "paper": {"m": 1024, "n": 1024, "k": 512},
    "real": {"m": 8192, "n": 8192, "k": 28672},  # Llama-3-70B down projection, 8192 tokens; K_local 3584 on 8 ranks
    "odd": {"m": 129, "n": 65, "k": 149},
    "decode": {"m": 64, "n": 8192, "k": 28672},  # 64 sequences
}


def _shape(size: Size, world_size: int) -> tuple[int, int, int]:
    """M, N and K_local."""
    return -(-size["m"] // world_size) * world_size, size["n"], size["k"] // world_size


def inputs(draw: Draw) -> Arguments:
    m, n, k = _shape(draw.size, draw.world_size)
    return {
        "A_local": draw.normal("A_local", (m, k)),
        "B_local": draw.normal("B_local", (k, n), scale=k**-0.5),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """B_local is not scaled."""
    _, n, k = _shape(draw.size, draw.world_size)
    return {"B_local": draw.normal("B_local, published", (k, n))}


def solution(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    world_size = dist.get_world_size()
    if A_local.shape[1] != B_local.shape[0]:
        raise ValueError(f"inner sizes differ: A_local {tuple(A_local.shape)}, B_local {tuple(B_local.shape)}")
    if A_local.shape[0] % world_size != 0:
        raise ValueError(f"{A_local.shape[0]} rows cannot be shared out evenly among {world_size} ranks")
    partial = torch.matmul(A_local.contiguous(), B_local.contiguous())
    shape = (partial.shape[0] // world_size, partial.shape[1])
    out = torch.empty(shape, dtype=partial.dtype, device=partial.device)
    dist.reduce_scatter_tensor(out, partial, op=dist.ReduceOp.SUM)
    return out


def stock_symmetric(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    """Pieces of the product overlap with pieces of the sum."""
    return torch.ops.symm_mem.fused_matmul_reduce_scatter(
        A_local.contiguous(), B_local.contiguous(), "sum", scatter_dim=0, group_name=world_name()
    )


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    (m, n, k), w = _shape(size, world_size), world_size
    product = m * n * element_bytes
    return Cost.reduce_scatter(
        product,
        w,
        flops=2 * m * n * k + (w - 1) / w * m * n,
        hbm_bytes=(m * k + k * n) * element_bytes + product / w,
        # Rows of A to whom they fall, and all of B to everybody, by multicast.
        least_link_bytes=(w - 1) / w * min(product, (m * k + w / (w - 1 or 1) * k * n) * element_bytes),
    )


PROBLEM = Problem(
    id=16,
    name="gemm_reducescatter",
    source="Megatron-LM RowParallelLinear with sequence parallelism",
    taxonomy=Taxonomy(
        parallelism=("tp", "sp"),
        layer="mlp",
        stage=("training-forward", "inference"),
        pattern=("reduce-scatter",),
        system="LLM training",
        fusable="GEMM",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    stock_symmetric=stock_symmetric,
    baseline_reason="one GEMM and one NCCL reduce-scatter",
    tried=(Alternative("in four pieces of rows, each scattered while the next is computed", us=8723),),
    cost=cost,
    compare=NormGate(tau={torch.bfloat16: 1.2e-2}),  # eight partial sums, each rounded: 5.4e-3
    version=2,  # tolerance
)
