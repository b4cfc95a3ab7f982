"""All-gather of unequal shards: every rank ends up with all of them, joined along one axis in rank order.

VeOmni's Ulysses sequence parallelism uses it where sequences cannot be cut equally, such as the tokens of images. Rank
r holds `x`, whose size along `gather_dim` is its own affair and may be zero; all other axes, and the number of axes,
agree between the ranks. Afterwards every rank holds the same tensor, whose size along gather_dim is the sum of all. No
rank knows the shapes of the others: they are exchanged first, then the shards. Nothing is computed, so the bits must
be the same.

Where a shard begins in the result is the sum of the sizes before it. Along the first axis a shard is one flat piece of
the result; along another one it is a short run in every row, often at an odd address. Shared buffers must be sized for
the largest shard of all ranks, by a decision of all ranks, and the host need not wait for the sizes if the kernel
itself reads them from its peers. A good kernel places every shard directly where it belongs.
"""

import math
import random

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # m: size of a shard along the gathered axis, on average over the ranks; n: size of the other axis
    "tiny": {"m": 32, "n": 24},
    "paper": {"m": 1024, "n": 1024},
    "real": {"m": 9216, "n": 3584},  # image tokens of Qwen2.5-VL-7B, 73728 in all on 8 ranks
    "odd": {"m": 37, "n": 29},
}
EMPTY_SHARDS = 0.15
LARGEST_SHARD = 4
"""In average shards: a rank with nearly everything would make the shared buffers of all ranks as large."""
KINDS = {"gather_dim_0": 0.5, "gather_dim_1": 0.5}


def shard_sizes(average: int, world_size: int, source: random.Random) -> list[int]:
    """Unequal sizes, some of them zero, with the given average."""
    total = average * world_size
    while True:
        weights = [0.0 if source.random() < EMPTY_SHARDS else source.uniform(0.1, 1.0) for _ in range(world_size)]
        if sum(weights) == 0:
            continue
        bounds = [round(total * sum(weights[:i]) / sum(weights)) for i in range(world_size)] + [total]
        sizes = [bounds[i + 1] - bounds[i] for i in range(world_size)]
        if max(sizes) <= LARGEST_SHARD * average:
            return sizes


def inputs(draw: Draw) -> Arguments:
    source = draw.random("shards", key="all")
    own = shard_sizes(draw.size["m"], draw.world_size, source)[draw.rank]
    gather_dim = int(draw.kind_of(KINDS) == "gather_dim_1")
    shape = (own, draw.size["n"]) if gather_dim == 0 else (draw.size["n"], own)
    return {"x": draw.normal("x", shape), "gather_dim": gather_dim, "group": draw.group("world")}


def solution(x: torch.Tensor, gather_dim: int, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    if not -x.dim() <= gather_dim < x.dim():
        raise ValueError(f"a tensor {tuple(x.shape)} has no axis {gather_dim}")
    gather_dim %= x.dim()
    group = dist.group.WORLD if group is None else group
    assert group is not None
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)

    own_shape = torch.tensor(x.shape, dtype=torch.int64, device=x.device)
    all_shapes = torch.empty(world_size * x.dim(), dtype=torch.int64, device=x.device)
    dist.all_gather_into_tensor(all_shapes, own_shape, group=group)
    shapes = all_shapes.view(world_size, x.dim()).tolist()
    for source, shape in enumerate(shapes):
        if any(shape[axis] != x.shape[axis] for axis in range(x.dim()) if axis != gather_dim):
            raise ValueError(f"the shard {tuple(shape)} of rank {source} does not fit {tuple(x.shape)} of rank {rank}")

    # Collectives want equal sizes: shards travel flat, padded to the largest.
    counts = [math.prod(shape) for shape in shapes]
    padded = torch.empty(max(counts), dtype=x.dtype, device=x.device)
    padded[: x.numel()] = x.reshape(-1)
    gathered = torch.empty(world_size * max(counts), dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(gathered, padded, group=group)
    flat = gathered.view(world_size, -1)
    shards = [flat[source, : counts[source]].view(shape) for source, shape in enumerate(shapes)]
    return torch.cat(shards, dim=gather_dim)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    shard, w = size["m"] * size["n"] * element_bytes, world_size
    shapes = 16  # two axes of 8 bytes
    return Cost.all_gather(
        w * (shard + shapes),
        w,
        phases=2,
        hbm_bytes=(1 + w) * shard,
        note="an average rank; one with a smaller shard receives more, one with a larger shard sends more",
    )


PROBLEM = Problem(
    id=35,
    name="ulysses_all_gather_variable_primitive",
    source="VeOmni, Ulysses all-gather of unequal shards",
    taxonomy=Taxonomy(
        parallelism=("sp", "collective"),
        layer="collective",
        stage=("training-forward",),
        pattern=("all-gather", "all-gather-v"),
        system="RL post-training",
        fusable="strided placement",
    ),
    sizes=SIZES,
    inputs=inputs,
    kinds=KINDS,
    reference=solution,
    baseline_reason="shards travel in one all-gather, padded",
    tried=(Alternative("torch's all-gather of a list, for which NCCL broadcasts each shard as it is", us=10232),),
    cost=cost,
    compare=Exact(),
    truth="native",
    version=2,  # kinds of calls
)
