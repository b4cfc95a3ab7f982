"""Sparse push of embedding gradients: every (index, row) pair goes to the rank that owns the index.

DGL's sparse_all_to_all_push with a remainder partition. Rank r holds `idx` (nnz) with repeats and one row of `value`
for each; node i belongs to rank i mod W. Afterwards each rank holds the pairs it owns: ordered by source rank, and
within a source in their original order. Indices stay global, duplicates are not merged, num_nodes is not needed. How
many pairs a rank has, and how many it gets, differs from rank to rank and call to call. Nothing is computed, so the
bits must be the same. With one rank the result is a copy of the arguments.

Slots handed out by atomics lose the order: a stable position needs a histogram for each block and a scan. A receiver
cannot size its result before all counts are known, and the host must learn that size; a good kernel exchanges counts
early, then writes each row straight to its final place at the owner, without a sorted copy.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.problems.exchanged_counts import exchanged_counts
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # nnz: pairs of a rank, on average
    "tiny": {"nodes": 1000, "nnz": 64, "f": 16},
    "paper": {"nodes": 100_000, "nnz": 1024, "f": 128},
    "real": {"nodes": 111_059_956, "nnz": 1_000_000, "f": 128},  # gradients of an ogbn-papers100M table
    "odd": {"nodes": 997, "nnz": 83, "f": 13},
}
HOT_NODES = 5
HOT_SHARE = 0.25
KINDS = {"all_have_pairs": 0.8, "one_has_none": 0.2}
"""With one rank without pairs, the others have more: of two ranks one has all."""


def pair_counts(draw: Draw) -> list[int]:
    """How many pairs each rank has: uneven, sometimes none, on average as many as the size says."""
    world_size, source = draw.world_size, draw.random("counts", key="all")
    weights = [source.uniform(0.3, 1.0) for _ in range(world_size)]
    if world_size > 1 and draw.kind_of(KINDS) == "one_has_none":
        weights[source.randrange(world_size)] = 0.0
    total = draw.size["nnz"] * world_size
    bounds = [round(total * sum(weights[:i]) / sum(weights)) for i in range(world_size)] + [total]
    return [bounds[i + 1] - bounds[i] for i in range(world_size)]


def inputs(draw: Draw) -> Arguments:
    nodes = draw.size["nodes"]
    nnz = pair_counts(draw)[draw.rank]
    idx = draw.integers("idx", (nnz,), 0, nodes)
    # Nodes of high degree appear in everybody's minibatch: repeats, and owners with more work than others.
    hot = draw.integers("hot", (HOT_NODES,), 0, nodes, key="all")
    choice = draw.integers("choice", (nnz,), 0, HOT_NODES)
    is_hot = draw.uniform("is hot", (nnz,), 0, 1, dtype=torch.float32) < (0.0 if draw.even else HOT_SHARE)
    return {
        "idx": torch.where(is_hot, hot[choice], idx),
        "value": draw.normal("value", (nnz, draw.size["f"])),
        "num_nodes": nodes,
        "group": draw.group("world"),
    }


def solution(
    idx: torch.Tensor, value: torch.Tensor, num_nodes: int, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    world_size = dist.get_world_size(group)
    if idx.dim() != 1 or value.shape[:1] != idx.shape:
        raise ValueError(f"idx {tuple(idx.shape)} and value {tuple(value.shape)} must have one entry for each pair")
    if world_size == 1:
        return idx.clone(), value.clone(memory_format=torch.contiguous_format)

    owner = idx % world_size
    order = torch.argsort(owner, stable=True)
    send_counts = torch.bincount(owner, minlength=world_size)
    receive_counts = torch.empty_like(send_counts)
    dist.all_to_all_single(receive_counts, send_counts, group=group)
    send, receive = send_counts.tolist(), receive_counts.tolist()

    received_idx = idx.new_empty(sum(receive))
    received_value = value.new_empty((sum(receive), *value.shape[1:]))
    dist.all_to_all_single(received_idx, idx[order], receive, send, group=group)
    dist.all_to_all_single(received_value, value[order].contiguous(), receive, send, group=group)
    return received_idx, received_value


def baseline(
    idx: torch.Tensor, value: torch.Tensor, num_nodes: int, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """One wait for the device instead of three."""
    world_size = dist.get_world_size(group)
    if world_size == 1:
        return idx.clone(), value.clone(memory_format=torch.contiguous_format)
    owners, order = torch.sort(idx % world_size, stable=True)
    send, receive = exchanged_counts(owners, world_size, group)
    received_idx = idx.new_empty(sum(receive))
    received_value = value.new_empty((sum(receive), *value.shape[1:]))
    dist.all_to_all_single(received_idx, idx[order], receive, send, group=group)
    dist.all_to_all_single(received_value, value[order].contiguous(), receive, send, group=group)
    return received_idx, received_value


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, pair = world_size, 8 + size["f"] * element_bytes
    pairs, counts = (w - 1) / w * size["nnz"] * pair, 8 * (w - 1)
    return Cost.all_to_all(
        size["nnz"] * pair + 8 * w,
        w,
        phases=2,
        hbm_bytes=2 * size["nnz"] * pair,
        note="an average rank; counts, then pairs written straight to their places",
        mean_link_bytes=(1 - HOT_SHARE / 2) * pairs + counts,  # the ranks with most pairs may own the hot nodes
        least_link_bytes=(1 - HOT_SHARE / 2)
        * (w - 1)
        / w
        * size["nnz"]
        * (pair - 6),  # ids in the bytes that they need
    )


PROBLEM = Problem(
    id=67,
    name="gnn_sparse_embedding_all2all",
    source="DGL sparse_all_to_all_push",
    taxonomy=Taxonomy(
        parallelism=("graph",),
        layer="embedding",
        stage=("training-backward",),
        pattern=("all-to-all", "all-to-all-v"),
        system="graph networks",
        fusable="stable bucketing by owner",
    ),
    sizes=SIZES,
    inputs=inputs,
    kinds=KINDS,
    reference=solution,
    baseline=baseline,
    cost=cost,
    compare=Exact(),
    truth="native",
    version=2,  # calls with a rank without pairs are a kind
)
