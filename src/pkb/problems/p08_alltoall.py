"""All-to-all: every rank sends a different slice of its tensor to every rank.

DeepSpeed-Ulysses exchanges heads for sequence positions this way, and mixtures of experts with equal capacity
their tokens. Rank r holds `tensor` (W, M, N), of which slice d is meant for rank d; afterwards its result (W,
M, N) holds in slice s what rank s meant for it: out_r[s] = tensor_s[r]. In general axis 0 is k * W, and blocks
of k rows take the place of slices. Nothing is computed, so the bits must be the same.

W-1 slices must leave and enter each rank. A good kernel stores them straight into the peers' results, starts
with the next rank rather than with rank 0 so that no peer is hit by all others at once, and copies its own
slice locally.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # m, n: one slice
    "tiny": {"m": 16, "n": 64},
    "paper": {"m": 1024, "n": 1024},
    "real": {"m": 8192, "n": 512},  # Ulysses on Llama-3-8B, 65 536 tokens on 8 ranks
    "odd": {"m": 43, "n": 29},
    "decode": {"m": 16, "n": 7168},  # DeepSeek-V3, 16 tokens for each destination
}


def inputs(draw: Draw) -> Arguments:
    return {"tensor": draw.normal("tensor", (draw.world_size, draw.size["m"], draw.size["n"]))}


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """All elements that rank r sends to rank d are 10 r + d."""
    w, first = draw.world_size, 10 * draw.rank
    numbers = torch.arange(first, first + w, dtype=draw.dtype, device=draw.device)
    return {"tensor": numbers.view(w, 1, 1).expand(w, draw.size["m"], draw.size["n"]).contiguous()}


def solution(tensor: torch.Tensor) -> torch.Tensor:
    world_size = dist.get_world_size()
    if tensor.dim() == 0 or tensor.shape[0] % world_size != 0:
        raise ValueError(f"a tensor {tuple(tensor.shape)} cannot be cut into {world_size} equal slices along axis 0")
    out = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    dist.all_to_all_single(out, tensor.contiguous())
    return out


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    one_slice, w = size["m"] * size["n"] * element_bytes, world_size
    return Cost.all_to_all(
        w * one_slice,
        w,
        hbm_bytes=2 * w * one_slice,
    )


PROBLEM = Problem(
    id=8,
    name="alltoall",
    source="plain collective (DeepSpeed-Ulysses, mixtures of experts with equal capacity)",
    taxonomy=Taxonomy(
        parallelism=("collective", "sp", "ep"),
        layer="collective",
        stage=("training-forward", "training-backward", "inference"),
        pattern=("all-to-all",),
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
)
