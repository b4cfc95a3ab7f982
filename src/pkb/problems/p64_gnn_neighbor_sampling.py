"""Multi-hop neighbour sampling in a partitioned graph: ask owners for neighbours, deduplicate, relabel.

PyTorch Geometric's DistNeighborSampler with collectives in place of remote calls and the first k neighbours in place
of random ones. The graph has V nodes; node_to_rank says who owns which. Rank r holds the in-neighbours of its own nodes
in compressed columns: those of node v stand in local_adj_col[ptr[v] : ptr[v + 1]], and a node of another rank has none
here. Starting from its own, distinct `seed_nodes`, for each fanout k a rank asks the owners of the newest nodes for
their first min(k, degree) neighbours (all if k < 0); edge ids are positions in the owner's array. Answers are taken in
the order of the asking nodes; ids not seen before are appended to `node` in order of first appearance and are the ones
that ask in the next hop. The result is node, and for every edge in order the positions in `node` of neighbour (row) and
asking node (col), and its edge id. All integers, all exact; `replace` is ignored.

A rank whose own search has run dry must go on serving the others to the last hop. With one-sided reads an owner need
not answer: a good kernel reads pointers and columns of the peers directly, and deduplicates with a hash table that
remembers the order of first appearance, on the device.
"""

import math

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

# degree: neighbours of a node, on average; seeds: of a rank, on average; take_all_percent: calls that take all in the last hop
SIZES: dict[str, Size] = {
    "tiny": {"nodes": 400, "degree": 4, "seeds": 12, "hops": 2, "fanout": 5, "take_all_percent": 20},
    "paper": {"nodes": 10_000, "degree": 16, "seeds": 512, "hops": 2, "fanout": 10},
    "real": {"nodes": 2_449_029, "degree": 50, "seeds": 1024, "hops": 3, "fanout": 15},  # ogbn-products
    "odd": {"nodes": 331, "degree": 3, "seeds": 17, "hops": 3, "fanout": 3, "take_all_percent": 100},
}
RANK_WITH_NOTHING_TO_DO = 0.3
SKEW = 3
"""Power of the cuts: the largest degrees are about three times the average, times a geometric number."""


def owned_counts(draw: Draw) -> list[int]:
    """How many nodes each rank owns: a partitioner does not balance exactly."""
    source, w, nodes = draw.random("partition", key="all"), draw.world_size, draw.size["nodes"]
    weights = [source.uniform(0.7, 1.0) for _ in range(w)]
    bounds = [round(nodes * sum(weights[:i]) / sum(weights)) for i in range(w)] + [nodes]
    return [bounds[i + 1] - bounds[i] for i in range(w)]


def fanouts_of(draw: Draw) -> list[int]:
    """Shrinking from hop to hop, as usual: 15, 10, 5; in a small graph sometimes all neighbours in the last hop.

    At `odd` always: plans make one or two calls there, which are all small ones where a candidate is judged at a large size.
    """
    hops, fanout = draw.size["hops"], draw.size["fanout"]
    fanouts = [max(1, fanout * (hops - hop) // hops) for hop in range(hops)]
    if draw.random("fanouts", key="all").random() < draw.size.get("take_all_percent", 0) / 100:
        fanouts[-1] = -1
    return fanouts


def skewed_neighbours(draw: Draw, edges: int) -> torch.Tensor:
    """Half of the edges come from any node, half from popular ones: the k-th of these has about 1 / k of them."""
    nodes = draw.size["nodes"]
    col = draw.integers("col", (edges,), 0, nodes)
    # On shapes alone, arithmetic would import torch's compiler: seconds, in every evaluation.
    if draw.device.type == "meta":
        return col
    depth = draw.uniform("depth", (edges,), 0, 1, dtype=torch.float64)
    popular = torch.exp(depth * math.log(nodes + 1)).long().sub(1).clamp(0, nodes - 1)
    hub = draw.permutation("hubs", nodes, key="all")[popular]
    return torch.where(draw.integers("popular", (edges,), 0, 2) == 1, hub, col)


def inputs(draw: Draw) -> Arguments:
    nodes, counts = draw.size["nodes"], owned_counts(draw)
    edges = draw.size["degree"] * counts[draw.rank]
    host = draw.random("seeds")
    idle = draw.random("idle", key="all")
    # Alone, a rank has nobody to go on serving: such a call would be none.
    one_is_idle = draw.world_size > 1 and idle.random() < RANK_WITH_NOTHING_TO_DO
    idle_rank = idle.randrange(draw.world_size) if one_is_idle else None
    seed_count = 1 if draw.rank == idle_rank else max(1, round(draw.size["seeds"] * host.uniform(0.5, 1.5)))

    col = skewed_neighbours(draw, edges)
    if draw.device.type == "meta":
        seeds, row_ptr, owner = (
            torch.empty((n,), dtype=torch.int64, device="meta") for n in (seed_count, nodes + 1, nodes)
        )
    else:
        place = draw.permutation("owners", nodes, key="all")
        bounds = torch.tensor(counts, device=draw.device).cumsum(0)
        owner = torch.bucketize(place, bounds, right=True)
        # Random cuts of the edge list, thinner towards its end: many nodes of few neighbours, some of very many.
        own = (owner == draw.rank).nonzero()[:, 0]
        cuts = (draw.uniform("cuts", (nodes,), 0, 1, dtype=torch.float64) ** SKEW * (edges + 1)).long()
        cuts = cuts.clamp(max=edges)[: len(own) - 1].sort().values
        edge = torch.tensor([edges], device=draw.device)
        degree = torch.zeros(nodes, dtype=torch.int64, device=draw.device)
        degree[own] = torch.cat([cuts, edge]) - torch.cat([edge * 0, cuts])
        row_ptr = torch.cat([edge * 0, degree.cumsum(0)])
        seeds = draw.permutation("seed nodes", nodes)[:seed_count]
        alone = own[(degree[own] == 0) & (own > 0)]  # with node 0 alone, zeros would be the right answer
        if draw.rank == idle_rank and len(alone):  # a seed without neighbours: this rank runs dry at once
            seeds = alone[:1].clone()
    return {
        "seed_nodes": seeds,
        "fanouts": fanouts_of(draw),
        "local_adj_row_ptr": row_ptr,
        "local_adj_col": col,
        "node_to_rank": owner,
        "group": draw.group("world"),
        "replace": draw.random("replace", key="all").random() < 0.5,  # changes nothing
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """A ring: node v is rank v mod W's, its neighbours are the nodes that follow it, and seeds are consecutive nodes."""
    if draw.device.type == "meta":
        return {}
    nodes, degree, w, device = draw.size["nodes"], draw.size["degree"], draw.world_size, draw.device
    seeds = draw.size["seeds"]
    # In turn, until a rank has as many as it is to own: where W does not divide the nodes, some have one more.
    counts = owned_counts(draw)
    turn = torch.cat([torch.arange(count, device=device) * w + rank for rank, count in enumerate(counts)])
    owner = turn.sort().values % w
    own = owner == draw.rank
    following = own.nonzero() + torch.arange(1, degree + 1, device=device)
    return {
        "seed_nodes": (torch.arange(seeds, device=device) + draw.rank * seeds) % nodes,
        "local_adj_row_ptr": torch.cat([owner.new_zeros(1), (own * degree).cumsum(0)]),
        "local_adj_col": following.flatten() % nodes,
        "node_to_rank": owner,
    }


def solution(
    seed_nodes: torch.Tensor,
    fanouts: list[int],
    local_adj_row_ptr: torch.Tensor,
    local_adj_col: torch.Tensor,
    node_to_rank: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    replace: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    world_size, device = dist.get_world_size(group), seed_nodes.device
    if seed_nodes.unique().numel() != seed_nodes.numel():
        raise ValueError("seed nodes must be distinct")

    def spans(start: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        """start[0], start[0] + 1, ... (count[0] numbers), then the same for start[1], and so on."""
        before = count.cumsum(0) - count
        first = torch.repeat_interleave(start - before, count)
        return first + torch.arange(first.numel(), device=device)

    node = asking = seed_nodes.to(torch.int64)
    found, askers, edge_ids = [], [], []
    for fanout in fanouts:  # no rank leaves early: it may be asked even if it has nothing to ask
        owner = node_to_rank[asking]
        order = torch.argsort(owner, stable=True)
        ask_counts = torch.bincount(owner, minlength=world_size)
        serve_counts = torch.empty_like(ask_counts)
        dist.all_to_all_single(serve_counts, ask_counts, group=group)
        ask, serve = ask_counts.tolist(), serve_counts.tolist()
        asked = asking.new_empty(sum(serve))
        dist.all_to_all_single(asked, asking[order], serve, ask, group=group)

        # As an owner: how many neighbours each asked node gives, and which.
        start = local_adj_row_ptr[asked]
        degree = local_adj_row_ptr[asked + 1] - start
        taken = degree if fanout < 0 else degree.clamp(max=fanout)
        position = spans(start, taken)
        answer = torch.stack([local_adj_col[position], position], dim=1)
        taken_here = taken.new_empty(asking.numel())
        dist.all_to_all_single(taken_here, taken, ask, serve, group=group)
        rows = torch.stack([part.sum() for part in (*taken.split(serve), *taken_here.split(ask))]).tolist()
        answer_rows, expect_rows = rows[:world_size], rows[world_size:]
        answers = answer.new_empty((sum(expect_rows), 2))
        dist.all_to_all_single(answers, answer, expect_rows, answer_rows, group=group)

        # Answers came sorted by owner: bring them into the order of the asking nodes.
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel(), device=device)
        begins = taken_here.cumsum(0) - taken_here
        answers = answers[spans(begins[place], taken_here[place])]
        neighbour = answers[:, 0].contiguous()
        found.append(neighbour)
        edge_ids.append(answers[:, 1])
        askers.append(torch.repeat_interleave(asking, taken_here[place]))

        # Append what is new, in order of first appearance.
        seen = torch.cat([node, neighbour])
        distinct, which = torch.unique(seen, return_inverse=True)
        appearance = torch.arange(seen.numel(), device=device)
        first_seen = torch.full_like(distinct, seen.numel()).scatter_reduce(0, which, appearance, "amin")
        known = node.numel()
        node = seen[first_seen.sort().values]
        asking = node[known:]

    by_id = node.argsort()
    sorted_node = node[by_id].contiguous()
    empty = node.new_empty(0)
    row = by_id[torch.searchsorted(sorted_node, torch.cat([empty, *found]))]
    col = by_id[torch.searchsorted(sorted_node, torch.cat([empty, *askers]))]
    return node, row, col, torch.cat([empty, *edge_ids])


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    """Expected, for an average rank: pointers and neighbours are read from their owners, positions give the edge ids."""
    w, hops, nodes = world_size, size["hops"], size["nodes"]
    # Degrees are geometric, around a mean that grows with the square of the node's place among those of its rank.
    means = [SKEW * ((place + 0.5) / 16) ** (SKEW - 1) * size["degree"] for place in range(16)]
    asking, asked, edges = float(size["seeds"]), 0.0, 0.0
    for hop in range(hops):
        fanout = max(1, size["fanout"] * (hops - hop) // hops)
        of_each = sum((m / (m + 1)) ** n for m in means for n in range(1, fanout + 1)) / len(means)
        take_all = size.get("take_all_percent", 0) / 100 if hop == hops - 1 else 0.0
        taken = asking * ((1 - take_all) * of_each + take_all * size["degree"])
        asked, edges = asked + asking, edges + taken
        asking = (nodes - asked) * (1 - (1 - 1 / nodes) ** (taken / 2))  # found for the first time; hubs are known soon
    return Cost.all_to_all(
        16 * asked + 8 * edges,
        w,
        phases=2 * hops,
        hbm_bytes=16 * asked + 8 * edges + 8 * (asked + asking) + 24 * edges,
        note="an estimate: how many nodes are new depends on the graph; two pointers for each node and its neighbours are "
        "read, where the reference sends questions, counts, neighbours and edge ids",
        least_link_bytes=(w - 1) / w * (2 * asked + 2 * edges),  # degrees and ids in the bytes that they need
    )


PROBLEM = Problem(
    id=64,
    name="gnn_neighbor_sampling",
    source="PyTorch Geometric DistNeighborSampler",
    taxonomy=Taxonomy(
        parallelism=("graph",),
        layer="graph",
        stage=("data", "training-forward"),
        pattern=("all-to-all", "all-to-all-v"),
        system="graph networks",
        fusable="column lookup, deduplication, relabelling",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline_reason="each hop needs its counts on the host, once for the questions and once for the answers",
    cost=cost,
    compare=Exact(),
    truth="native",
    version=3,  # all neighbours in every call at odd
)
