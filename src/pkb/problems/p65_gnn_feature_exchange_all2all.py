"""Feature exchange of cooperative graph minibatching: gather local rows, then all-to-all with relative peer order.

The forward pass of DGL GraphBolt's CooperativeConvFunction. In an earlier exchange every rank told its peers which
vertices it needs; now the features travel the other way. Rank r holds `local_features` and a list of row numbers,
`seed_inverse_ids`, with repeats, cut by `counts_received` into W chunks. Chunk indices are relative: chunk i is for
peer (r + i) mod W, and chunk i of the result, counts_sent[i] rows long, comes from that same peer; chunk 0 stays
here. The names are those of the earlier exchange: counts_received is what this rank now sends, counts_sent what it
now receives. Nothing is computed, so the bits must be the same.

With equal counts, treating chunk i as the chunk of peer i gives the right shape and wrong rows. A good kernel gathers
straight into the peer's memory, or pulls, without a packed copy; where a chunk starts at the other side does not
follow from a rank's own lists and must be learned first. Chunks may be empty.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.problems.graph_chunks import chunk_matrix
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # q: rows for each peer, on average; f: features
    "tiny": {"q": 12, "f": 16},
    "paper": {"q": 256, "f": 128},
    "real": {"q": 32768, "f": 256},  # ogbn-papers100M, hidden size 256
    "odd": {"q": 11, "f": 37},
}


def inputs(draw: Draw) -> Arguments:
    w, r = draw.world_size, draw.rank
    matrix = chunk_matrix(w, draw.size["q"], draw.random("chunks", key="all"))
    rows = sum(matrix[r])
    features = max(1, 3 * rows // 4)
    return {
        "local_features": draw.normal("local_features", (features, draw.size["f"])),
        "seed_inverse_ids": draw.integers("seed_inverse_ids", (rows,), 0, features),
        "counts_sent": [matrix[(r + i) % w][r] for i in range(w)],
        "counts_received": [matrix[r][(r + i) % w] for i in range(w)],
        "group": draw.group("world"),
    }


def solution(
    local_features: torch.Tensor,
    seed_inverse_ids: torch.Tensor,
    counts_sent: list[int],
    counts_received: list[int],
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if len(counts_sent) != world_size or len(counts_received) != world_size:
        raise ValueError(f"{len(counts_sent)} and {len(counts_received)} counts for {world_size} ranks")
    if sum(counts_received) != seed_inverse_ids.shape[0]:
        raise ValueError(f"counts {counts_received} do not add up to {seed_inverse_ids.shape[0]} ids")

    # From relative order (chunk i is for rank + i) to the order of ranks that the collective wants.
    chunks = local_features[seed_inverse_ids].split(counts_received)
    relative = [(peer - rank) % world_size for peer in range(world_size)]
    send = torch.cat([chunks[i] for i in relative])
    received = send.new_empty((sum(counts_sent), *send.shape[1:]))
    send_rows, receive_rows = [counts_received[i] for i in relative], [counts_sent[i] for i in relative]
    dist.all_to_all_single(received, send, receive_rows, send_rows, group=group)

    by_peer = received.split(receive_rows)
    return torch.cat([by_peer[(rank + i) % world_size] for i in range(world_size)])


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, row = world_size, size["f"] * element_bytes
    rows = size["q"] * w
    return Cost.all_to_all(
        rows * row,
        w,
        hbm_bytes=2 * rows * row + 8 * rows,
        note="an average rank; the counts of a call make some rank busier",
    )


PROBLEM = Problem(
    id=65,
    name="gnn_feature_exchange_all2all",
    source="DGL GraphBolt CooperativeConvFunction, forward",
    taxonomy=Taxonomy(
        parallelism=("graph",),
        layer="graph",
        stage=("training-forward",),
        pattern=("all-to-all-v",),
        system="graph networks",
        fusable="row gather before sending",
    ),
    sizes=SIZES,
    inputs=inputs,
    reference=solution,
    baseline_reason="one gather, one exchange and one concatenation",
    tried=(Alternative("a message for each chunk, without concatenations"),),
    cost=cost,
    compare=Exact(),
    truth="native",
)
