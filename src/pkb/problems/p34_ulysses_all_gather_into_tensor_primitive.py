"""All-gather along the first axis: every rank ends up with the shards of all ranks, one below the other.

VeOmni's Ulysses sequence parallelism gathers sequence shards with it. Rank r holds `x` (M, ...); afterwards every
rank holds (W * M, ...), in which rows r * M to (r + 1) * M are rank r's x, its own included. It is a concatenation, so
the result has as many axes as x. All ranks pass the same shape. Nothing is computed, so the bits must be the same, and
the result is a tensor of its own even if there is only one rank.

Along the first axis the shards lie one after another in memory: a good kernel is W flat copies, bound by the W - 1
shards that enter each rank. It pulls them (with a barrier before, so that the data is there, and one after, so that no
peer changes its shard under the reader), or every rank pushes its shard to all peers, once where the switch can
multicast. What it returns must not be a shared buffer that the next call overwrites.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {
    "tiny": {"m": 48, "n": 32},
    "paper": {"m": 1024, "n": 1024},
    "real": {"m": 16384, "n": 8192},  # Llama-3-70B activations, a sequence of 131072 on 8 ranks
    "odd": {"m": 59, "n": 43},
}


def inputs(draw: Draw) -> Arguments:
    return {"x": draw.normal("x", (draw.size["m"], draw.size["n"])), "group": draw.group("world")}


def solution(x: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    if x.dim() == 0:
        raise ValueError("a tensor without axes cannot be gathered along its first axis")
    world_size = dist.get_world_size(group)
    out = torch.empty((world_size * x.shape[0], *x.shape[1:]), dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    shard, w = size["m"] * size["n"] * element_bytes, world_size
    return Cost.all_gather(
        w * shard,
        w,
        hbm_bytes=(1 + w) * shard,
    )


PROBLEM = Problem(
    id=34,
    name="ulysses_all_gather_into_tensor_primitive",
    source="VeOmni, Ulysses all-gather into one tensor",
    taxonomy=Taxonomy(
        parallelism=("sp", "collective"),
        layer="collective",
        stage=("training-forward",),
        pattern=("all-gather",),
        system="RL post-training",
    ),
    sizes=SIZES,
    inputs=inputs,
    reference=solution,
    baseline_reason="the reference is one NCCL collective",
    cost=cost,
    compare=Exact(),
    truth="native",
)
