"""Gradient of the cooperative feature exchange: all-to-all back to the owners, then a sum over repeated rows.

The backward pass of DGL GraphBolt's CooperativeConvFunction (problem 65 is the forward pass). Rank r holds
`grad_output`, cut by `counts_sent` into W chunks with relative indices: chunk i is for peer (r + i) mod W, and
counts_received[i] rows come from that peer. Row j of what arrived, chunks in relative order, is a gradient of row
seed_inverse_ids[j] of this rank's features; row s of the result is the sum of all gradients of s, and exactly zero
where nobody asked for s. Sums are taken in float32 or wider and rounded once.

The row numbers live at the receiver, so a sender cannot add into the owner's memory unless it reads them first. A
kernel that does add with atomics must know that the result was zeroed before any peer begins; one that pulls rows and
adds them in registers needs neither.
"""

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Context, NormGate
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
    arriving = sum(matrix[s][r] for s in range(w))
    seed_size = max(1, arriving // 2)
    return {
        "grad_output": draw.normal("grad_output", (sum(matrix[r]), draw.size["f"])),
        "seed_inverse_ids": draw.integers("seed_inverse_ids", (arriving,), 0, seed_size),
        "seed_size": seed_size,
        "counts_sent": [matrix[r][(r + i) % w] for i in range(w)],
        "counts_received": [matrix[(r + i) % w][r] for i in range(w)],
        "group": draw.group("world"),
    }


def solution(
    grad_output: torch.Tensor,
    seed_inverse_ids: torch.Tensor,
    seed_size: int,
    counts_sent: list[int],
    counts_received: list[int],
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if grad_output.dim() != 2:
        raise ValueError(f"grad_output must have two axes, not {tuple(grad_output.shape)}")
    if len(counts_sent) != world_size or len(counts_received) != world_size:
        raise ValueError(f"{len(counts_sent)} and {len(counts_received)} counts for {world_size} ranks")
    if sum(counts_sent) != grad_output.shape[0] or sum(counts_received) != seed_inverse_ids.shape[0]:
        raise ValueError("counts do not add up to the rows of grad_output and to the number of seed_inverse_ids")

    # From relative order (chunk i is for rank + i) to the order of ranks that the collective wants.
    chunks = grad_output.split(counts_sent)
    relative = [(peer - rank) % world_size for peer in range(world_size)]
    send = torch.cat([chunks[i] for i in relative])
    received = send.new_empty((sum(counts_received), send.shape[1]))
    send_rows, receive_rows = [counts_sent[i] for i in relative], [counts_received[i] for i in relative]
    dist.all_to_all_single(received, send, receive_rows, send_rows, group=group)
    by_peer = received.split(receive_rows)
    gradients = torch.cat([by_peer[(rank + i) % world_size] for i in range(world_size)])

    wide = torch.promote_types(grad_output.dtype, torch.float32)
    out = torch.zeros((seed_size, send.shape[1]), dtype=wide, device=send.device)
    out.index_add_(0, seed_inverse_ids, gradients.to(wide))
    return out.to(grad_output.dtype)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, row = world_size, size["f"] * element_bytes
    rows = size["q"] * w
    return Cost.all_to_all(
        rows * row,
        w,
        flops=rows * size["f"],
        hbm_bytes=rows * row + 8 * rows + max(1, rows // 2) * row,
        note="an average rank; the counts of a call make some rank busier",
    )


@dataclass(frozen=True)
class ScatterSum:
    """Sums of about two terms each; where nothing was added, nothing but zero will do."""

    gate: NormGate

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        unasked = truth == 0
        if bool((output[unasked] != 0).any()):  # NaN != 0 too
            return math.inf
        return self.gate(truth, output, context)


PROBLEM = Problem(
    id=66,
    name="gnn_feature_exchange_all2all_backward",
    source="DGL GraphBolt CooperativeConvFunction, backward",
    taxonomy=Taxonomy(
        parallelism=("graph",),
        layer="graph",
        stage=("training-backward",),
        pattern=("all-to-all-v",),
        system="graph networks",
        fusable="scatter-add",
    ),
    sizes=SIZES,
    inputs=inputs,
    reference=solution,
    baseline_reason="one exchange and one index_add",
    tried=(
        Alternative("rows sorted by seed and summed by segments, without atomics", us=10687),
        Alternative("a message for each chunk, without concatenations"),
    ),
    cost=cost,
    # A sum of about two terms, at most ten: the errors are a few units in the last place.
    compare=ScatterSum(NormGate(tau={torch.bfloat16: 5e-3, torch.float16: 6e-4, torch.float32: 1e-6})),
    dtypes=("fp32", "bf16", "fp16", "fp64"),  # float32 is upstream's
)
