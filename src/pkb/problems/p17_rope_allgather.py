"""Rotary position embedding of queries and keys, then both are gathered along the sequence.

The prologue of Llama-style attention under sequence parallelism. Rank r holds q_local (B, S, heads, D) and k_local
(B, S, KV heads, D) of positions [r * S, (r + 1) * S), and cos_local and sin_local (B, S, D) for those positions.
Each head is rotated in the half-split way: with rot(x) = concat(-x[D/2:], x[:D/2]), the result is x * cos +
rot(x) * sin, both products and their sum rounded to the dtype (rounding less is allowed). Afterwards every rank holds
q (B, W * S, heads, D) and k (B, W * S, KV heads, D), the shards in rank order along the sequence.

The arithmetic is nothing beside the transfer: a good kernel rotates while it stores to its peers, straight into the
gathered layout. That layout interleaves: a rank's shard is B slabs of S positions, W * S positions apart. The partner
of element i is i + D/2 or i - D/2, not its neighbour, and tables may be scaled: cos^2 + sin^2 need not be 1.
"""

import math

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # tokens: the whole sequence; each of W ranks holds tokens // W positions
    "tiny": {"batch": 2, "tokens": 16, "heads": 4, "kv_heads": 2, "head_size": 16},
    "paper": {"batch": 16, "tokens": 16, "heads": 8, "kv_heads": 8, "head_size": 64},
    "real": {"batch": 1, "tokens": 32768, "heads": 64, "kv_heads": 8, "head_size": 128},  # Llama-3-70B
    "odd": {"batch": 3, "tokens": 29, "heads": 5, "kv_heads": 1, "head_size": 22},
}
BASE = 500_000.0
"""Llama-3's: element pair i turns by BASE^(-2i/D) radians a position."""


def tables(draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin (B, S, D) of this rank's positions.

    Sequences of a batch begin at different positions, as the chunks of a long prompt do, and the tables carry an
    attention factor as YaRN's do: neither follows from rank and shape.
    """
    batch, positions, head_size = draw.size["batch"], draw.size["tokens"] // draw.world_size, draw.size["head_size"]
    start = draw.integers("start", (batch, 1), 0, 4096, key="all")
    step = torch.arange(positions, device=draw.device) + draw.rank * positions
    pair = torch.arange(head_size // 2, device=draw.device, dtype=torch.float64)
    frequency = torch.exp(pair * (-2 * math.log(BASE) / head_size))
    angle = (start + step)[..., None].double() * frequency
    angle = torch.cat((angle, angle), dim=-1)
    factor = draw.random("attention factor", key="all").uniform(0.8, 1.0)
    return (angle.cos() * factor).to(draw.dtype), (angle.sin() * factor).to(draw.dtype)


def inputs(draw: Draw) -> Arguments:
    batch, positions, head_size = draw.size["batch"], draw.size["tokens"] // draw.world_size, draw.size["head_size"]
    cos, sin = tables(draw)
    return {
        "q_local": draw.normal("q_local", (batch, positions, draw.size["heads"], head_size)),
        "k_local": draw.normal("k_local", (batch, positions, draw.size["kv_heads"], head_size)),
        "cos_local": cos,
        "sin_local": sin,
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Tables of normal numbers, others on each rank, and no cosines."""
    shape = (draw.size["batch"], draw.size["tokens"] // draw.world_size, draw.size["head_size"])
    return {
        "cos_local": draw.normal("cos_local, published", shape),
        "sin_local": draw.normal("sin_local, published", shape),
    }


def solution(
    q_local: torch.Tensor, k_local: torch.Tensor, cos_local: torch.Tensor, sin_local: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    if q_local.shape[-1] % 2 or k_local.shape[-1] % 2:
        raise ValueError(f"head sizes {q_local.shape[-1]} and {k_local.shape[-1]} must be even")
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    cos, sin = cos_local.unsqueeze(2), sin_local.unsqueeze(2)  # the same for all heads

    def rotate(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin

    def gather_sequence(x: torch.Tensor) -> torch.Tensor:
        if world_size == 1:
            return x
        shards = torch.empty((world_size * x.shape[0], *x.shape[1:]), dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(shards, x.contiguous())
        return torch.cat(shards.chunk(world_size), dim=1)

    return gather_sequence(rotate(q_local)), gather_sequence(rotate(k_local))


def baseline(
    q_local: torch.Tensor, k_local: torch.Tensor, cos_local: torch.Tensor, sin_local: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Halves are turned into their places, and positions travel before the batch: one sequence needs no copy afterwards."""
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    (cos_1, cos_2), (sin_1, sin_2) = (t.transpose(0, 1).unsqueeze(2).chunk(2, dim=-1) for t in (cos_local, sin_local))

    def start(x: torch.Tensor) -> tuple[torch.Tensor, dist.Work | None]:
        x = x.transpose(0, 1)
        turned = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        (first, second), (new_first, new_second) = x.chunk(2, dim=-1), turned.chunk(2, dim=-1)
        torch.mul(first, cos_1, out=new_first).addcmul_(second, sin_1, value=-1)
        torch.mul(second, cos_2, out=new_second).addcmul_(first, sin_2)
        if world_size == 1:
            return turned, None
        everything = x.new_empty((world_size * x.shape[0], *x.shape[1:]))
        return everything, dist.all_gather_into_tensor(everything, turned, async_op=True)

    started = [start(q_local), start(k_local)]
    for _, work in started:
        if work is not None:
            work.wait()
    q, k = (everything.transpose(0, 1).contiguous() for everything, _ in started)
    return q, k


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, positions = world_size, size["batch"] * (size["tokens"] // world_size)
    elements = positions * (size["heads"] + size["kv_heads"]) * size["head_size"]
    shard, angles = elements * element_bytes, 2 * positions * size["head_size"] * element_bytes
    return Cost.all_gather(
        w * shard,
        w,
        flops=3 * elements,
        hbm_bytes=shard + angles + w * shard,
    )


def requires(size: Size, world_size: int) -> str | None:
    if size["tokens"] < world_size:
        return f"{size['tokens']} tokens are too few for {world_size} ranks"
    return None


PROBLEM = Problem(
    id=17,
    name="rope_allgather",
    source="Llama-style attention prologue under sequence parallelism (Megatron-LM)",
    taxonomy=Taxonomy(
        parallelism=("sp", "cp"),
        layer="attention",
        stage=("training-forward", "inference"),
        pattern=("all-gather",),
        system="LLM training",
        fusable="rotation, placement into the gathered layout",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    tried=(Alternative("heads turned in one pass by torch.compile, into this rank's own place of the result"),),
    cost=cost,
    requires=requires,
)
