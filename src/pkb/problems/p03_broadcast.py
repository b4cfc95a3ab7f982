"""Broadcast: every rank ends up with a copy of one rank's tensor.

DDP starts with it, so that all replicas begin with the same parameters, and reinforcement learning uses it to
bring new weights from the trainer to the rollout ranks. Every rank holds `tensor` (M, N), but only the one of
rank `src` counts: elsewhere its contents are placeholders that say the shape and dtype of what comes.
Afterwards every rank holds a fresh copy of the source's tensor, and no rank's `tensor` has changed. `src`
differs from call to call.

When all ranks pull from the source, the source's link carries the tensor W-1 times. A good kernel sends it
once: by multicast, or chunk by chunk along a chain of ranks, or as a scatter of W pieces that all ranks then
exchange.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {
    "tiny": {"m": 64, "n": 64},
    "paper": {"m": 1024, "n": 1024},
    "real": {"m": 128256, "n": 4096},  # Llama-3-8B token embedding
    "odd": {"m": 127, "n": 61},
}


def inputs(draw: Draw) -> Arguments:
    return {
        "tensor": draw.normal("tensor", (draw.size["m"], draw.size["n"])),
        # The same on all ranks but different from call to call: a hard-coded root must fail.
        "src": draw.random("root", key="all").randrange(draw.world_size),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """All elements are r + 1 on rank r."""
    return {"tensor": torch.full((draw.size["m"], draw.size["n"]), draw.rank + 1, dtype=draw.dtype, device=draw.device)}


def solution(tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
    if not 0 <= src < dist.get_world_size():
        raise ValueError(f"src is {src}, but there are {dist.get_world_size()} ranks")
    out = tensor.clone(memory_format=torch.contiguous_format)
    dist.broadcast(out, src=src)
    return out


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    payload = size["m"] * size["n"] * element_bytes
    return Cost.broadcast(
        payload,
        world_size,
        hbm_bytes=2 * payload,  # the source reads its tensor and writes its own copy of it
        note="sent once along a pipelined chain; W-1 times if every rank pulls from the source",
        mean_hbm_bytes=(1 + 1 / world_size) * payload,  # all write a copy, the source alone reads
        mean_link_bytes=(1 - 1 / world_size) * payload,
    )


PROBLEM = Problem(
    id=3,
    name="broadcast",
    source="plain collective (DDP start-up, weight synchronisation in reinforcement learning)",
    taxonomy=Taxonomy(
        parallelism=("collective", "dp", "tp"),
        layer="collective",
        stage=("training-forward", "inference", "rl"),
        pattern=("broadcast",),
        system="collectives",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline_reason="the reference is one NCCL collective on a copy; the source alone needs that",
    tried=(Alternative("the source copies its tensor while it is sent, and the others copy nothing"),),
    cost=cost,
    compare=Exact(),
    truth="native",
)
