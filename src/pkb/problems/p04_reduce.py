"""Reduce: one rank ends up with the elementwise sum of the tensors of all ranks.

DeepSpeed's ZeRO-1 and ZeRO-2 reduce a bucket of gradients to the rank that owns it. Rank r holds `tensor` (M,
N); afterwards rank `dst` holds the sum over all W ranks, in the tensor's dtype and not divided by W, and every
other rank holds a copy of its own tensor. No rank's `tensor` has changed. `dst` differs from call to call.

When the root pulls everything, W-1 tensors enter its link. A good kernel lets every rank add up one W-th and
send only that to the root (less than two tensors enter any link), passes partial sums along a chain, or lets
the switch add. The ranks that are not the root may return early, but their tensors must stay readable until the
root is done.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Context, Exact
from pkb.problems.draw import Arguments, Draw
from pkb.problems.plain_sums import SumGate, draw_summand
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {
    "tiny": {"m": 64, "n": 64},
    "paper": {"m": 1024, "n": 1024},
    "real": {"m": 500000, "n": 1000},  # DeepSpeed's default bucket of 5e8 gradients
    "odd": {"m": 127, "n": 61},
}


def inputs(draw: Draw) -> Arguments:
    return {
        "tensor": draw_summand(draw, "tensor", (draw.size["m"], draw.size["n"])),
        # The same on all ranks but different from call to call: a hard-coded root must fail.
        "dst": draw.random("root", key="all").randrange(draw.world_size),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """All elements are r + 1 on rank r."""
    return {"tensor": torch.full((draw.size["m"], draw.size["n"]), draw.rank + 1, dtype=draw.dtype, device=draw.device)}


def solution(tensor: torch.Tensor, dst: int = 0) -> torch.Tensor:
    if not 0 <= dst < dist.get_world_size():
        raise ValueError(f"dst is {dst}, but there are {dist.get_world_size()} ranks")
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.reduce(total, dst=dst, op=dist.ReduceOp.SUM)
    if dist.get_rank() != dst and dist.get_backend() == "gloo":
        total.copy_(tensor)  # gloo leaves partial sums here
    return total


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    elements, w = size["m"] * size["n"], world_size
    payload = elements * element_bytes
    return Cost.reduce(
        payload,
        w,
        flops=(w - 1) / w * elements,  # the additions can be shared out evenly
        hbm_bytes=2 * payload,
        note="partial sums along a pipelined chain; W-1 times as much is received if the root pulls everything",
        mean_link_bytes=(w - 1) / w * payload,  # the ends of the chain only send, or only receive
    )


@dataclass(frozen=True)
class SumOnRoot:
    """The root holds a sum, subject to rounding; every other rank holds its own input, bit for bit."""

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        rule = SumGate() if context.rank == context.arguments["dst"] else Exact()
        return rule(truth, output, context)


PROBLEM = Problem(
    id=4,
    name="reduce",
    source="plain collective (DeepSpeed ZeRO-1/2 gradient buckets)",
    taxonomy=Taxonomy(
        parallelism=("collective", "dp", "fsdp"),
        layer="collective",
        stage=("training-backward",),
        pattern=("reduce",),
        system="collectives",
        fusable="elementwise sum",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline_reason="the reference is one NCCL collective on a copy; the second copy is made with gloo only",
    cost=cost,
    compare=SumOnRoot(),
    version=4,  # elements of small columns count, and few rows
)
