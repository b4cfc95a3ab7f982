"""All-to-all along two axes of a tensor: one axis is scattered over the ranks, another is gathered from them.

The primitive of DeepSpeed-Ulysses and VeOmni's sequence parallelism. Each of W ranks cuts its x along scatter_dim into W
equal chunks and sends chunk d to rank d; its result is the concatenation along gather_dim of what the ranks sent here,
in the order of their ranks, its own chunk included. So scatter_dim shrinks by W and gather_dim grows by W; if both are
the same axis, the shape stays. For (0, 1) on (M, N): out[i, j * N + c] = x of rank j [r * M / W + i, c]. Nothing is
computed, so the bits must be the same.

What travels between two ranks is a block that is strided at the source, at the destination, or at both. A good kernel
reads and writes the strides directly instead of packing and unpacking, and keeps its accesses wide although a row
segment need not be a multiple of 16 bytes.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # every axis is rounded up to a multiple of W; with `all_dims`, every pair of axes occurs
    "tiny": {"m": 24, "n": 16, "d": 8, "all_dims": 1},
    "paper": {"m": 1024, "n": 1024},
    "real": {"m": 131072, "n": 1024},  # Llama-3-70B, hidden 8192 over 8 ranks, sequence 131072
    "odd": {"m": 53, "n": 37, "all_dims": 1},
}


def shape_of(size: Size, world_size: int) -> tuple[int, ...]:
    return tuple(-(-size[axis] // world_size) * world_size for axis in ("m", "n", "d") if axis in size)


def inputs(draw: Draw) -> Arguments:
    shape = shape_of(draw.size, draw.world_size)
    scatter_dim, gather_dim = 0, 1
    if "all_dims" in draw.size:
        source = draw.random("dims", key="all")
        scatter_dim, gather_dim = (source.randrange(-len(shape), len(shape)) for _ in range(2))
    return {
        "x": draw.normal("x", shape),
        "scatter_dim": scatter_dim,
        "gather_dim": gather_dim,
        "group": draw.group("world"),
    }


def solution(
    x: torch.Tensor, scatter_dim: int, gather_dim: int, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    world_size = dist.get_world_size(group)
    if x.shape[scatter_dim] % world_size:
        raise ValueError(f"axis {scatter_dim} of {tuple(x.shape)} cannot be cut into {world_size} equal chunks")
    send = torch.stack(x.chunk(world_size, dim=scatter_dim))
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    return torch.cat(received.unbind(), dim=gather_dim)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w = world_size
    elements = 1
    for extent in shape_of(size, w):
        elements *= extent
    message = elements * element_bytes
    return Cost.all_to_all(
        message,
        w,
        hbm_bytes=2 * message,
    )


PROBLEM = Problem(
    id=33,
    name="ulysses_all_to_all_tensor_primitive",
    source="VeOmni and DeepSpeed-Ulysses, sequence-parallel all-to-all",
    taxonomy=Taxonomy(
        parallelism=("sp",),
        layer="collective",
        stage=("training-forward",),
        pattern=("all-to-all",),
        system="RL post-training",
        fusable="strided pack and unpack",
    ),
    sizes=SIZES,
    inputs=inputs,
    reference=solution,
    baseline_reason="one copy before the exchange and one after it, which the layouts ask for",
    cost=cost,
    compare=Exact(),
    truth="native",
)
