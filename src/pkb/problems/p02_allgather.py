"""All-gather: every rank ends up with the tensors of all ranks, stacked on a new leading axis in rank order.

FSDP and ZeRO-3 gather the shards of a layer's parameters this way before they use them. Rank r holds `tensor`
(M, N); afterwards every rank holds (W, M, N) with slice s equal to rank s's tensor, its own slice included. It
is a stack, not a concatenation: the result has one axis more than the input. Nothing is computed, so the bits
must be the same.

A good kernel is bound by the W-1 shards that enter each rank. It either pulls them (with a barrier before, so
that the data is there, and one after, so that a peer does not change its tensor under the reader) or pushes its
own shard into every peer's result, once for all of them where the switch can multicast.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.problems.symmetric_ops import buffer_for, finished, world_name
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {
    "tiny": {"m": 64, "n": 32},
    "paper": {"m": 1024, "n": 1024},
    "real": {"m": 26625, "n": 1024},  # an eighth of one Llama-3-8B decoder block (218 112 000 parameters)
    "odd": {"m": 61, "n": 37},
    "decode": {"m": 4, "n": 8192},  # Llama-3-70B with sequence parallelism, 32 sequences on 8 ranks
}


def inputs(draw: Draw) -> Arguments:
    return {"tensor": draw.normal("tensor", (draw.size["m"], draw.size["n"]))}


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """All elements are r + 1 on rank r."""
    return {"tensor": torch.full((draw.size["m"], draw.size["n"]), draw.rank + 1, dtype=draw.dtype, device=draw.device)}


def solution(tensor: torch.Tensor) -> torch.Tensor:
    world_size = dist.get_world_size()
    # Through flat views: not every backend accepts an output with one axis more than the input.
    gathered = torch.empty(world_size * tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    dist.all_gather_into_tensor(gathered, tensor.contiguous().view(-1))
    return gathered.view(world_size, *tensor.shape)


def stock_symmetric(tensor: torch.Tensor) -> torch.Tensor:
    name = world_name()
    flat = buffer_for((tensor.numel(),), tensor.dtype, tensor.device, name).copy_(tensor.reshape(-1))
    everything = finished(torch.ops.symm_mem._low_contention_all_gather(flat, name))
    return everything.view(-1, *tensor.shape)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    shard, w = size["m"] * size["n"] * element_bytes, world_size
    return Cost.all_gather(
        w * shard,
        w,
        hbm_bytes=(1 + w) * shard,
    )


PROBLEM = Problem(
    id=2,
    name="allgather",
    source="plain collective (FSDP parameters, Megatron-LM sequence parallelism)",
    taxonomy=Taxonomy(
        parallelism=("collective", "fsdp", "sp"),
        layer="collective",
        stage=("training-forward", "training-backward", "inference"),
        pattern=("all-gather",),
        system="collectives",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    stock_symmetric=stock_symmetric,
    baseline_reason="the reference is one NCCL collective",
    cost=cost,
    compare=Exact(),
    truth="native",
)
