"""Lookup in an embedding table whose rows are spread over the ranks in contiguous blocks.

torchrec's row-wise sharding, and token embeddings sharded over the vocabulary. Rank r holds rows [r * S, (r + 1) * S)
of the table, local_shard (S, D), and its own `indices` (T,) into the whole table of W * S rows; T differs between
ranks and may be zero. It returns row indices[p] of the table at place p, for its own indices in their own order.
Nothing is computed, so the bits must be the same.

The reference sorts its indices by owner, exchanges counts, then indices, then rows, and puts the rows back into the
caller's order. A good kernel needs none of that if it can read its peers' shards: once these are known to be
complete, it loads each row straight from its owner. It must not keep a staged copy of a shard for later calls, since
the table changes between them, and a rank without lookups must still serve its rows.
"""

import math

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # rows, width: one rank's shard; lookups: of a rank, on average over the ranks
    "tiny": {"rows": 32, "width": 16, "lookups": 40},
    "paper": {"rows": 1024, "width": 1024, "lookups": 1024},
    "real": {"rows": 16032, "width": 8192, "lookups": 8192},  # Llama-3-70B, a vocabulary of 128 256 over 8 ranks
    "odd": {"rows": 37, "width": 19, "lookups": 53},
}
CALLS_WITH_AN_IDLE_RANK = 0.25


def lookup_counts(draw: Draw) -> tuple[list[int], int | None]:
    """How many lookups each rank makes, and the rank that neither asks nor is asked, if there is one in this call.

    Two ranks, one of them idle, would have nothing to exchange: any call must communicate.
    """
    w, source = draw.world_size, draw.random("lookups", key="all")
    weights = [source.uniform(0.5, 1.5) for _ in range(w)]
    idle = source.randrange(w) if w > 2 and source.random() < CALLS_WITH_AN_IDLE_RANK else None
    if idle is not None:
        weights[idle] = 0.0
    total = w * draw.size["lookups"]
    bounds = [round(total * sum(weights[:r]) / sum(weights)) for r in range(w)] + [total]
    return [bounds[r + 1] - bounds[r] for r in range(w)], idle


def draw_indices(draw: Draw) -> torch.Tensor:
    """Token ids are skewed: the k-th most frequent is looked up about as often as 1 / k. Frequent ones are anywhere."""
    rows, w = draw.size["rows"], draw.world_size
    counts, idle = lookup_counts(draw)
    shape = (counts[draw.rank],)
    reachable = w * rows if idle is None else (w - 1) * rows
    # On shapes alone, arithmetic would import torch's compiler: seconds, in every evaluation.
    if draw.device.type == "meta":
        return draw.integers("depth", shape, 0, reachable)
    depth = draw.uniform("depth", shape, 0.0, 1.0, dtype=torch.float64)
    popular = torch.exp(depth * math.log(reachable + 1)).long().sub(1).clamp(0, reachable - 1)
    indices = draw.permutation("popularity", reachable, key="all")[popular]
    if idle is not None:
        indices = indices + rows * (indices >= idle * rows)
    # The published problem returns rows grouped by owner. Of sorted indices that is the caller's order.
    return indices.sort().values if draw.even else indices


def inputs(draw: Draw) -> Arguments:
    return {
        "indices": draw_indices(draw),
        "local_shard": draw.normal("local_shard", (draw.size["rows"], draw.size["width"])),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Any row is as likely as any other. Indices are grouped by owner, as `draw_indices` says, but not sorted within one."""
    rows = draw.size["rows"]
    indices = draw.integers("indices, published", (draw.size["lookups"],), 0, draw.world_size * rows)
    return {"indices": indices[torch.argsort(indices // rows, stable=True)]}


def solution(indices: torch.Tensor, local_shard: torch.Tensor) -> torch.Tensor:
    world_size = dist.get_world_size()
    rows, width = local_shard.shape
    indices = indices.to(local_shard.device)
    if indices.dim() != 1 or indices.dtype != torch.int64:
        raise ValueError(f"indices must be a vector of int64, not {indices.dtype} of shape {tuple(indices.shape)}")
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= world_size * rows):
        raise ValueError(f"indices must lie in [0, {world_size * rows})")

    owner = indices // rows
    order = torch.argsort(owner, stable=True)
    ask_counts = torch.bincount(owner, minlength=world_size)
    serve_counts = torch.empty_like(ask_counts)
    dist.all_to_all_single(serve_counts, ask_counts)
    ask, serve = ask_counts.tolist(), serve_counts.tolist()

    wanted = torch.empty(sum(serve), dtype=torch.int64, device=indices.device)
    dist.all_to_all_single(wanted, indices[order], serve, ask)
    found = local_shard[wanted % rows]
    answers = torch.empty((len(indices), width), dtype=local_shard.dtype, device=local_shard.device)
    dist.all_to_all_single(answers, found, ask, serve)

    out = torch.empty_like(answers)
    out[order] = answers  # back into the caller's order
    return out


def baseline(indices: torch.Tensor, local_shard: torch.Tensor) -> torch.Tensor:
    """One wait for the device, where the reference also checks the indices."""
    world_size = dist.get_world_size()
    rows, width = local_shard.shape
    owner = indices // rows
    order = torch.argsort(owner, stable=True)
    counts = torch.empty(2, world_size, dtype=torch.int64, device=indices.device)
    counts[0] = torch.bincount(owner, minlength=world_size)
    dist.all_to_all_single(counts[1], counts[0])
    ask, serve = counts.tolist()
    wanted = indices.new_empty(sum(serve))
    dist.all_to_all_single(wanted, indices[order], serve, ask)
    answers = local_shard.new_empty((len(indices), width))
    dist.all_to_all_single(answers, local_shard[wanted % rows], ask, serve)
    out = torch.empty_like(answers)
    out[order] = answers
    return out


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    lookups, row, w = size["lookups"], size["width"] * element_bytes, world_size
    table = w * size["rows"]
    place = torch.arange(1, table + 1, dtype=torch.float64)
    chance = torch.log1p(1 / place) / math.log(table + 1)
    distinct = float((1 - torch.exp(lookups * torch.log1p(-chance))).sum())
    return Cost.all_to_all(
        distinct * row,
        w,
        hbm_bytes=8 * lookups + (distinct + lookups) * row,
        note="expected for an average rank that reads each distinct row once from its owner, without sending indices",
    )


PROBLEM = Problem(
    id=10,
    name="embedding_lookup",
    source="torchrec row-wise sharded embedding; vocabulary-sharded token embedding",
    taxonomy=Taxonomy(
        parallelism=("vocab", "other"),
        layer="embedding",
        stage=("training-forward", "inference"),
        pattern=("all-to-all-v",),
        system="recommendation",
        fusable="sorting by owner, gathering of rows",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    tried=(Alternative("each distinct row travels once to a rank"),),
    cost=cost,
    compare=Exact(),
    truth="native",
    version=2,  # skewed ids
)
