"""Gather: one rank ends up with the tensors of all ranks, stacked on a new leading axis in rank order.

vLLM gathers vocabulary-parallel logits this way on the rank that samples. Rank r holds `tensor` (M, N);
afterwards rank `dst` holds (W, M, N) with slice s equal to rank s's tensor, and every other rank returns its
own `tensor`, the very object it was given. So **results differ in shape between ranks**. Nothing is computed,
so the bits must be the same. `dst` differs from call to call.

W-1 tensors must enter the root's link, and no algorithm does better. A good kernel lets every rank store
straight into the stacked result; the root waits for W-1 arrivals. If the root pulls instead, the others must
not return before it has read them.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {
    "tiny": {"m": 32, "n": 64},
    "paper": {"m": 1024, "n": 1024},
    "real": {"m": 256, "n": 16032},  # Llama-3-70B logits, TP 8, 256 decoding sequences
    "odd": {"m": 43, "n": 61},
}


def inputs(draw: Draw) -> Arguments:
    return {
        "tensor": draw.normal("tensor", (draw.size["m"], draw.size["n"])),
        # The same on all ranks but different from call to call: a hard-coded root must fail.
        "dst": draw.random("root", key="all").randrange(draw.world_size),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """All elements are r + 1 on rank r."""
    return {"tensor": torch.full((draw.size["m"], draw.size["n"]), draw.rank + 1, dtype=draw.dtype, device=draw.device)}


def solution(tensor: torch.Tensor, dst: int = 0) -> torch.Tensor:
    world_size = dist.get_world_size()
    if not 0 <= dst < world_size:
        raise ValueError(f"dst is {dst}, but there are {world_size} ranks")
    if dist.get_rank() != dst:
        dist.gather(tensor.contiguous(), None, dst=dst)
        return tensor
    gathered = torch.empty((world_size, *tensor.shape), dtype=tensor.dtype, device=tensor.device)
    dist.gather(tensor.contiguous(), list(gathered.unbind(0)), dst=dst)
    return gathered


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    part, w = size["m"] * size["n"] * element_bytes, world_size
    return Cost(
        flops=0,
        hbm_bytes=(1 + w) * part,  # the root reads its own part and writes all of them
        link_sent_bytes=part if w > 1 else 0,
        link_received_bytes=(w - 1) * part,
        phases=1 if w > 1 else 0,
        mean_hbm_bytes=2 * part,  # every part is read once and written once
        mean_link_bytes=(w - 1) / w * part,
        payload_bytes=w * part,
    )


PROBLEM = Problem(
    id=6,
    name="gather",
    source="plain collective (vLLM, vocabulary-parallel logits to the sampling rank)",
    taxonomy=Taxonomy(
        parallelism=("collective", "tp", "vocab"),
        layer="collective",
        stage=("inference",),
        pattern=("gather",),
        system="collectives",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline_reason="the reference is one NCCL collective",
    cost=cost,
    compare=Exact(),
    truth="native",
    returns_input=True,
)
