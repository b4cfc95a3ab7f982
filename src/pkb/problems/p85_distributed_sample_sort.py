"""Sorts keys that are spread over the ranks: afterwards rank r holds the r-th part of the sorted whole.

The multi-GPU sort of cuPyNumeric (Legate). Rank r holds a shard of any length, perhaps none, in any order; with N keys
in all, it returns positions [r q + min(r, x), ...) of the ascending order, q = N // W of them and one more if r < x =
N mod W. Keys are floating-point numbers without NaN, and many are equal.

The reference is a sample sort. Each rank sorts its shard and offers W evenly spaced keys; W - 1 of all these divide the
keys among the ranks. Keys equal to a divider are divided by the rank and position that they come from, or one rank could
get all copies of a common key. After an exchange every rank sorts what it received, and a second exchange makes all parts
equally long. A good kernel finds the exact dividing positions first, by a search over all sorted shards at once, so that
every key moves once, straight to its place, and then merges W sorted runs instead of sorting again.
"""

import math

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # keys of all ranks together; each has `least` times W or more
    "tiny": {"keys": 211, "least": 4},
    "paper": {"keys": 1024, "least": 4},
    "real": {"keys": 1 << 29, "least": 4},
    "odd": {"keys": 2003, "least": 3},
}
COMMON_KEYS = 0.4
"""Share of the keys that take one of a few values."""
KINDS = {"reversed": 0.375, "mixed": 0.375, "empty_shards": 0.25}
"""With every other shard empty, the others are twice as long, and take twice as long to sort."""


def total_keys(size: Size, world_size: int) -> int:
    return max(size["keys"], size["least"] * world_size**2)


def shard_lengths(draw: Draw) -> list[int]:
    """Uneven by up to a quarter; with empty shards, odd ranks hold nothing and even ones twice as much."""
    w, total = draw.world_size, total_keys(draw.size, draw.world_size)
    source = draw.random("lengths", key="all")
    weights = [source.uniform(0.75, 1.25) for _ in range(w)]
    if w > 1 and draw.kind_of(KINDS) == "empty_shards":
        weights[1::2] = [0.0] * len(weights[1::2])
    bounds = [round(total * sum(weights[:r]) / sum(weights)) for r in range(w)] + [total]
    return [bounds[r + 1] - bounds[r] for r in range(w)]


def inputs(draw: Draw) -> Arguments:
    length = shard_lengths(draw)[draw.rank]
    kind = draw.kind_of(KINDS)
    if kind == "empty_shards":
        kind = draw.random("order", key="all").choice(("reversed", "mixed"))
    # In half of the calls shards overlap little and stand in reverse order: nearly every key must move.
    offset = -4.0 * draw.rank if kind == "reversed" else 0.0
    keys = draw.normal("keys", (length,), dtype=torch.promote_types(draw.dtype, torch.float32))
    if draw.device.type != "meta":
        common = draw.uniform("common", (length,), 0, 1, dtype=torch.float32) < COMMON_KEYS
        # No common key is zero, as fresh memory is: often only keys of the middle move when parts are balanced.
        keys = torch.where(common, ((keys * 2).floor() + 0.5) / 2, keys) + offset
    return {"local_shard": keys.to(draw.dtype), "group": draw.group("world")}


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """A hundred different whole numbers on each rank; shards hardly overlap and stand in reverse order."""
    shard = drawn["local_shard"]
    assert isinstance(shard, torch.Tensor)
    keys = draw.integers("keys, published", tuple(shard.shape), -50, 50)
    return {"local_shard": keys.to(draw.dtype) - draw.rank * max(1, len(keys))}


def solution(local_shard: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    if local_shard.dim() != 1 or not local_shard.is_floating_point():
        raise ValueError("a shard must be one row of floating-point keys")
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    device = local_shard.device

    def lengths_of_all(length: int) -> list[int]:
        lengths = torch.empty(world_size, dtype=torch.int64, device=device)
        dist.all_gather_into_tensor(lengths, torch.tensor([length], device=device), group=group)
        return [int(n) for n in lengths.tolist()]

    def exchange(keys: torch.Tensor, send: list[int], receive: list[int]) -> torch.Tensor:
        received = torch.empty(sum(receive), dtype=keys.dtype, device=device)
        dist.all_to_all_single(received, keys, receive, send, group=group)
        return received

    keys = local_shard.sort().values
    lengths = lengths_of_all(len(keys))
    total = sum(lengths)
    if total == 0:
        return keys

    # W evenly spaced samples of each rank (all keys of a shorter one), ordered by (value, rank, position).
    places = [
        [(i + 1) * n // world_size - 1 for i in range(world_size)] if n > world_size else list(range(n))
        for n in lengths
    ]
    samples = torch.zeros(world_size, dtype=keys.dtype, device=device)
    samples[: len(places[rank])] = keys[places[rank]]
    gathered = torch.empty(world_size * world_size, dtype=keys.dtype, device=device)
    dist.all_gather_into_tensor(gathered, samples, group=group)
    origin = [(r, place) for r in range(world_size) for place in places[r]]
    values = torch.cat([gathered[r * world_size :][: len(places[r])] for r in range(world_size)])
    values, order = values.sort(stable=True)
    chosen = [(i + 1) * len(order) // world_size - 1 for i in range(world_size - 1)]
    dividers = [(values[i], *origin[int(order[i])]) if i >= 0 else None for i in chosen]

    # How many of the own keys are not above each divider.
    bounds = [0]
    for divider in dividers:
        below = 0
        if divider is not None:
            value, from_rank, place = divider
            below = place + 1 if from_rank == rank else int(torch.searchsorted(keys, value, right=rank < from_rank))
        bounds.append(below)
    bounds.append(len(keys))
    send = [bounds[r + 1] - bounds[r] for r in range(world_size)]
    receive = torch.empty(world_size, dtype=torch.int64, device=device)
    dist.all_to_all_single(receive, torch.tensor(send, device=device), group=group)
    keys = exchange(keys, send, receive.tolist()).sort().values

    # The parts are in order but of unequal length: everybody knows who holds and who should hold which positions.
    lengths = lengths_of_all(len(keys))
    held = [sum(lengths[:r]) for r in range(world_size + 1)]
    wanted = [r * (total // world_size) + min(r, total % world_size) for r in range(world_size + 1)]

    def overlap(holder: int, owner: int) -> int:
        return max(0, min(held[holder + 1], wanted[owner + 1]) - max(held[holder], wanted[owner]))

    send = [overlap(rank, owner) for owner in range(world_size)]
    return exchange(keys, send, [overlap(holder, rank) for holder in range(world_size)])


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w = world_size
    shard = total_keys(size, w) / w
    moved = (w - 1) / w * shard
    # Counted, every value that 16 bits can have; of wider keys the differences of sorted runs, two bits above their entropy.
    counted = 8 * 2**16 if element_bytes == 2 else math.inf
    differences = moved * (max(0.0, 8 * element_bytes - math.log2(w * shard)) + 2) / 8
    return Cost.all_to_all(
        shard * element_bytes,
        w,
        phases=2,
        hbm_bytes=2 * shard * element_bytes,
        note="shards in random order, each key moved once; the reference moves many twice. Only one pass of a sort is "
        "counted in memory traffic",
        least_link_bytes=min(counted, differences, moved * element_bytes),
    )


PROBLEM = Problem(
    id=85,
    name="distributed_sample_sort",
    source="cuPyNumeric (Legate), multi-GPU sample sort",
    taxonomy=Taxonomy(
        parallelism=("other", "dp"),
        layer="sort",
        stage=("simulation",),
        pattern=("all-gather", "all-to-all-v"),
        system="science",
        fusable="local sort, search for dividers, merge",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    kinds=KINDS,
    reference=solution,
    baseline_reason="the time is torch's sort, twice",
    tried=(
        Alternative(
            "keys put in order of their destination by a sample's dividers, and sorted once, where they arrive"
        ),
    ),
    cost=cost,
    compare=Exact(),
    truth="native",
    hints=(0,),  # samples: any dividers that all ranks know will do, since parts are balanced afterwards
    dtypes=("fp32", "bf16", "fp16", "fp64"),  # 16-bit keys have 65 536 values: counting them sorts them
    version=3,  # empty shards are a kind
)
