"""Reduce-scatter: the tensors of all ranks are summed, and every rank keeps one block of rows of the sum.

FSDP and ZeRO reduce gradients this way, and Megatron-LM's sequence parallelism the outputs of its row-parallel
layers. Rank r holds `tensor` (W * M, N); afterwards rank r holds rows [r * M, (r + 1) * M) of the sum over all
W ranks, in the tensor's dtype and not divided by W. Any number of further axes is left as it is.

W-1 blocks must leave and enter each rank. A good kernel lets every rank read its block from all peers at once
and add up in registers with float32 accumulation, in one fixed order; in-switch reduction brings the sum in
with one block. Atomic additions into a peer's result round once for each rank and come in any order.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.draw import Arguments, Draw
from pkb.problems.plain_sums import SumGate, draw_summand
from pkb.problems.symmetric_ops import finished, world_name
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # m: rows of one block
    "tiny": {"m": 16, "n": 64},
    "paper": {"m": 1024, "n": 1024},
    "real": {"m": 1024, "n": 8192},  # Llama-3-70B with sequence parallelism, 8192 tokens on 8 ranks
    "odd": {"m": 43, "n": 61},
    "decode": {"m": 4, "n": 8192},  # the same, 32 sequences on 8 ranks
}


def inputs(draw: Draw) -> Arguments:
    return {"tensor": draw_summand(draw, "tensor", (draw.world_size * draw.size["m"], draw.size["n"]))}


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """All elements are r + 1 on rank r."""
    shape = (draw.world_size * draw.size["m"], draw.size["n"])
    return {"tensor": torch.full(shape, draw.rank + 1, dtype=draw.dtype, device=draw.device)}


def solution(tensor: torch.Tensor) -> torch.Tensor:
    world_size = dist.get_world_size()
    if tensor.dim() == 0 or tensor.shape[0] % world_size != 0:
        raise ValueError(f"a tensor {tuple(tensor.shape)} cannot be cut into {world_size} equal blocks along axis 0")
    shape = (tensor.shape[0] // world_size, *tensor.shape[1:])
    out = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
    dist.reduce_scatter_tensor(out, tensor.contiguous(), op=dist.ReduceOp.SUM)
    return out


def stock_symmetric(tensor: torch.Tensor) -> torch.Tensor:
    return finished(torch.ops.symm_mem._low_contention_reduce_scatter(tensor.contiguous(), "sum", world_name()))


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    elements, w = size["m"] * size["n"], world_size
    block = elements * element_bytes
    return Cost.reduce_scatter(
        w * block,
        w,
        flops=(w - 1) * elements,
        hbm_bytes=(w + 1) * block,
    )


PROBLEM = Problem(
    id=7,
    name="reducescatter",
    source="plain collective (FSDP gradients, Megatron-LM sequence parallelism)",
    taxonomy=Taxonomy(
        parallelism=("collective", "fsdp", "sp", "tp"),
        layer="collective",
        stage=("training-forward", "training-backward"),
        pattern=("reduce-scatter",),
        system="collectives",
        fusable="elementwise sum",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    stock_symmetric=stock_symmetric,
    baseline_reason="the reference is one NCCL collective",
    cost=cost,
    compare=SumGate(),
    version=4,  # elements of small columns count, and few rows
)
