"""Row-parallel linear layer: every rank multiplies its slice of the contraction, then the products are summed.

Megatron-LM's RowParallelLinear without sequence parallelism (attention output and MLP down projection). Rank r holds
A_local (M, K) and B_local (K, N), its slices of a contraction of length K * W; afterwards every rank holds the whole sum
(M, N), the same bits everywhere. The per-rank product is rounded to the dtype before it is communicated.

A good kernel does not wait for the whole product: it publishes finished tiles and lets the owner of a tile add the W
partial tiles in one fixed order and hand out the result, so that most of the transfer hides under the matrix product.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.draw import Arguments, Draw
from pkb.problems.symmetric_ops import buffer_for, sum_in_place, world_name
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {
    "tiny": {"m": 64, "n": 64, "k": 32},
    "paper": {"m": 1024, "n": 1024, "k": 512},
    "real": {"m": 8192, "n": 8192, "k": 3584},  # Llama-3-70B down projection, TP 8, 8192 tokens
    "odd": {"m": 129, "n": 65, "k": 37},
    "decode": {"m": 32, "n": 8192, "k": 3584},  # 32 sequences
}


def inputs(draw: Draw) -> Arguments:
    m, n, k = draw.size["m"], draw.size["n"], draw.size["k"]
    return {
        "A_local": draw.normal("A_local", (m, k)),
        "B_local": draw.normal("B_local", (k, n), scale=k**-0.5),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """B_local is not scaled."""
    return {"B_local": draw.normal("B_local, published", (draw.size["k"], draw.size["n"]))}


def solution(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    if A_local.shape[1] != B_local.shape[0]:
        raise ValueError(f"inner sizes differ: A_local {tuple(A_local.shape)}, B_local {tuple(B_local.shape)}")
    C = torch.matmul(A_local.contiguous(), B_local.contiguous())
    dist.all_reduce(C, op=dist.ReduceOp.SUM)
    return C


def stock_symmetric(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    """The product is written to where the peers read it."""
    name = world_name()
    buffer = buffer_for((A_local.shape[0], B_local.shape[1]), A_local.dtype, A_local.device, name)
    torch.mm(A_local, B_local, out=buffer)
    return sum_in_place(buffer, name)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    m, n, k, w = size["m"], size["n"], size["k"], world_size
    product = m * n * element_bytes
    return Cost.all_reduce(
        product,
        w,
        flops=2 * m * n * k + (w - 1) / w * m * n,
        hbm_bytes=(m * k + k * n) * element_bytes + product,
        # Rows of A to whom they fall, all of B and finished rows to everybody, by multicast.
        least_link_bytes=min(2 * (w - 1) / w * product, ((w - 1) / w * m * k + k * n + m * n / w) * element_bytes),
    )


PROBLEM = Problem(
    id=13,
    name="gemm_allreduce",
    source="Megatron-LM RowParallelLinear",
    taxonomy=Taxonomy(
        parallelism=("tp",),
        layer="mlp",
        stage=("training-forward", "inference"),
        pattern=("all-reduce",),
        system="LLM training",
        fusable="GEMM",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    stock_symmetric=stock_symmetric,
    baseline_reason="one GEMM and one NCCL all-reduce",
    tried=(Alternative("in four pieces of rows, each summed while the next is computed", us=9880),),
    cost=cost,
    same_bits=True,
)
