"""Fetch feature rows from a table sharded by ranges, then project them: request, reply, matrix product.

DGL's sparse_all_to_all_pull, as WholeGraph does it, followed by the input layer of a graph network. The table of
num_total_nodes rows is cut into ranges of ceil(num_total_nodes / W); rank r holds range r, the last ones possibly
shorter. Rank r asks for Q nodes, in any order and with repeats, and gets (Q, out) = rows @ proj_matrix in the order
of its ids. Rows travel in the table's dtype; the product is accumulated in float32 and rounded once. proj_matrix is
a replicated weight. Q differs from rank to rank.

The requester knows the owner and the row of each id, so with one-sided reads a single phase is enough: a good kernel
pulls rows from peers straight into the tiles of its matrix product and never stores them. Nodes that many ask for can
be pulled once.
"""

import random

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.exchanged_counts import exchanged_counts
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

# Upstream's table is ogbn-papers100M, 57 GB in bf16 whatever W is. An evaluation holds several sets of arguments on two
# sides and one in float64, so `real` takes an eighth of its nodes (7 GB in all), and `paper` what a laptop holds.
SIZES = {
    "tiny": {"nodes": 600, "queries": 48, "d": 32},
    "paper": {"nodes": 200_000, "queries": 20_000, "d": 256},
    "real": {"nodes": 13_882_494, "queries": 200_000, "d": 256},
    "odd": {"nodes": 613, "queries": 41, "d": 29},
}
HOT_SHARE = 0.3


def query_counts(average: int, world_size: int, source: random.Random) -> list[int]:
    weights = [source.uniform(0.6, 1.0) for _ in range(world_size)]
    return [max(1, round(average * world_size * weight / sum(weights))) for weight in weights]


def inputs(draw: Draw) -> Arguments:
    nodes, d, w = draw.size["nodes"], draw.size["d"], draw.world_size
    shard = -(-nodes // w)
    own_rows = max(0, min(shard, nodes - draw.rank * shard))
    queries = query_counts(draw.size["queries"], w, draw.random("queries", key="all"))[draw.rank]
    # Some nodes have a high degree and are asked for again and again, by all ranks; their owners serve more.
    hot_count = max(1, nodes // 100)
    hot = draw.integers("hot", (hot_count,), 0, nodes, key="all")
    choice = draw.integers("choice", (queries,), 0, hot_count)
    is_hot = draw.uniform("is hot", (queries,), 0, 1, dtype=torch.float32) < HOT_SHARE
    ids = torch.where(is_hot, hot[choice], draw.integers("ids", (queries,), 0, nodes))
    if draw.even:  # every owner is asked as often
        turn = torch.arange(queries, device=draw.device)
        ids = ((turn + draw.rank) % w * shard + (7 * turn + draw.rank) % shard).clamp(max=nodes - 1)
    return {
        "local_embedding_shard": draw.normal("local_embedding_shard", (own_rows, d)),
        "input_node_ids": ids,
        "proj_matrix": draw.normal("proj_matrix", (d, d), scale=d**-0.5, key="all"),
        "num_total_nodes": nodes,
        "group": draw.group("world"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Every rank has its own projection, unscaled. `inputs` has the ids already."""
    return {"proj_matrix": draw.normal("proj_matrix, published", (draw.size["d"], draw.size["d"]))}


def solution(
    local_embedding_shard: torch.Tensor,
    input_node_ids: torch.Tensor,
    proj_matrix: torch.Tensor,
    num_total_nodes: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if local_embedding_shard.dtype != proj_matrix.dtype:
        raise ValueError(f"the table is {local_embedding_shard.dtype} and the projection {proj_matrix.dtype}")
    shard = -(-num_total_nodes // world_size)

    owner = (input_node_ids // shard).clamp(max=world_size - 1)
    order = torch.argsort(owner, stable=True)
    send_counts = torch.bincount(owner, minlength=world_size)
    receive_counts = torch.empty_like(send_counts)
    dist.all_to_all_single(receive_counts, send_counts, group=group)
    ask, serve = send_counts.tolist(), receive_counts.tolist()

    asked_here = input_node_ids.new_empty(sum(serve))
    dist.all_to_all_single(asked_here, input_node_ids[order], serve, ask, group=group)
    reply = local_embedding_shard[asked_here - rank * shard]
    received = reply.new_empty((input_node_ids.shape[0], reply.shape[1]))
    dist.all_to_all_single(received, reply, ask, serve, group=group)

    rows = torch.empty_like(received)
    rows[order] = received  # back to the order of the queries
    return torch.matmul(rows, proj_matrix)


def baseline(
    local_embedding_shard: torch.Tensor,
    input_node_ids: torch.Tensor,
    proj_matrix: torch.Tensor,
    num_total_nodes: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """One wait for the device instead of three."""
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    shard = -(-num_total_nodes // world_size)
    owners, order = torch.sort((input_node_ids // shard).clamp_(max=world_size - 1), stable=True)
    ask, serve = exchanged_counts(owners, world_size, group)
    asked_here = input_node_ids.new_empty(sum(serve))
    dist.all_to_all_single(asked_here, input_node_ids[order], serve, ask, group=group)
    reply = local_embedding_shard[asked_here.sub_(rank * shard)]
    received = reply.new_empty((input_node_ids.shape[0], reply.shape[1]))
    dist.all_to_all_single(received, reply, ask, serve, group=group)
    rows = torch.empty_like(received).index_copy_(0, order, received)
    return torch.matmul(rows, proj_matrix)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    q, d, w, nodes = size["queries"], size["d"], world_size, size["nodes"]
    distinct = sum(n * (1 - (1 - 1 / n) ** asked) for n, asked in (
        (max(1, nodes // 100), HOT_SHARE * q), (nodes, (1 - HOT_SHARE) * q),
    ))  # fmt: skip
    row = d * element_bytes
    return Cost.all_to_all(
        distinct * row,
        w,
        flops=2 * distinct * d * d,
        hbm_bytes=(distinct + q) * row + 8 * q + d * row,
        note="expected for an average rank that pulls and projects each distinct row once; the reference sends ids first, and "
        "a row for every query",
    )


PROBLEM = Problem(
    id=68,
    name="gnn_sparse_feature_fetch_projection",
    source="DGL sparse_all_to_all_pull and WholeGraph feature fetch",
    taxonomy=Taxonomy(
        parallelism=("graph",),
        layer="embedding",
        stage=("training-forward", "inference"),
        pattern=("all-to-all-v",),
        system="graph networks",
        fusable="row gather, GEMM",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    cost=cost,
    compare=NormGate(tau={torch.bfloat16: 5e-3}),  # rows are exact, the product is rounded once
)
