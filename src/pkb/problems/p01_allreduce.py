"""All-reduce: every rank ends up with the elementwise sum of the tensors of all ranks.

The collective of DDP gradients and of Megatron-LM's row-parallel layers. Rank r holds `tensor` (M, N) with
values of its own; afterwards every rank holds the sum over all W ranks, the same bits everywhere, and its own
`tensor` is as it was. The sum is in the tensor's dtype and is not divided by W.

A good kernel for large tensors gives every rank one W-th of the elements to add up (reading the peers' copies
in one fixed order) and then to hand out, which moves 2(W-1)/W of the tensor through each link; with in-switch
reduction it is about half of that. For small ones (below some 256 KiB) a single step in which every rank reads
everything is quicker, provided all ranks add in the same order.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.draw import Arguments, Draw
from pkb.problems.plain_sums import SumGate, draw_summand
from pkb.problems.symmetric_ops import buffer_for, sum_in_place, world_name
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {
    "tiny": {"m": 64, "n": 64},
    "paper": {"m": 1024, "n": 1024},
    "real": {"m": 8192, "n": 8192},  # Llama-3-70B activations, TP 8, prefill of 8192 tokens
    "odd": {"m": 127, "n": 61},
    "decode": {"m": 32, "n": 8192},  # Llama-3-70B, TP 8, 32 sequences
}


def inputs(draw: Draw) -> Arguments:
    return {"tensor": draw_summand(draw, "tensor", (draw.size["m"], draw.size["n"]))}


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """All elements are r + 1 on rank r."""
    return {"tensor": torch.full((draw.size["m"], draw.size["n"]), draw.rank + 1, dtype=draw.dtype, device=draw.device)}


def solution(tensor: torch.Tensor) -> torch.Tensor:
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return total


def stock_symmetric(tensor: torch.Tensor) -> torch.Tensor:
    name = world_name()
    buffer = buffer_for(tensor.shape, tensor.dtype, tensor.device, name)
    return sum_in_place(buffer.copy_(tensor), name)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    elements, w = size["m"] * size["n"], world_size
    payload = elements * element_bytes
    return Cost.all_reduce(
        payload,
        w,
        flops=(w - 1) / w * elements,
        hbm_bytes=2 * payload,
    )


PROBLEM = Problem(
    id=1,
    name="allreduce",
    source="plain collective (DDP gradients, Megatron-LM row-parallel outputs)",
    taxonomy=Taxonomy(
        parallelism=("collective", "dp", "tp"),
        layer="collective",
        stage=("training-forward", "training-backward", "inference"),
        pattern=("all-reduce",),
        system="collectives",
        fusable="elementwise sum",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    stock_symmetric=stock_symmetric,
    baseline_reason="the reference is one NCCL collective on a copy, which the result needs",
    tried=(Alternative("a reduce-scatter and an all-gather, which need no copy"),),
    cost=cost,
    compare=SumGate(),
    version=4,  # elements of small columns count, and few rows
    same_bits=True,
)
