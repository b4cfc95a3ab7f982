"""How many rows of features each rank sends to each other one, in a graph that is cut between them."""

import random
from collections.abc import Sequence

import torch
import torch.distributed as dist

EMPTY_CHUNKS = 0.2


def chunk_matrix(world_size: int, rows_per_peer: int, source: random.Random) -> list[list[int]]:
    """Entry [s][d]: rows that rank s sends to rank d. Uneven and partly zero, but every rank hears from another one."""
    ranks = range(world_size)
    while True:
        weight = [
            [0.0 if s != d and source.random() < EMPTY_CHUNKS else source.uniform(0.1, 1.0) for d in ranks]
            for s in ranks
        ]
        matrix = [[0] * world_size for _ in ranks]
        for travels in (False, True):  # as many rows travel, in total, as with equal chunks: the cost counts on it
            pairs = [(s, d) for s in ranks for d in ranks if (s != d) == travels]
            total = sum(weight[s][d] for s, d in pairs)
            if not total:
                continue
            done = before = 0
            reached = 0.0
            for s, d in pairs:
                reached += weight[s][d]
                done = round(rows_per_peer * len(pairs) * reached / total)
                matrix[s][d], before = done - before, done
        if world_size == 1 or all(any(matrix[s][d] for s in ranks if s != d) for d in ranks):
            return matrix


def exchange_chunks(
    send: Sequence[torch.Tensor], receive: Sequence[torch.Tensor], group: dist.ProcessGroup | None
) -> None:
    """Chunk i goes to the i-th rank after this one, and what that one has for this rank fills the i-th that is received: each
    from where it lies to where it belongs, where one collective wants all of them side by side."""
    group = dist.group.WORLD if group is None else group
    assert group is not None
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    receive[0].copy_(send[0])
    messages = []
    for i in range(1, world_size):
        after, before = (dist.get_global_rank(group, (rank + step) % world_size) for step in (i, -i))
        if send[i].numel():
            messages.append(dist.P2POp(dist.isend, send[i], after, group))
        if receive[-i].numel():
            messages.append(dist.P2POp(dist.irecv, receive[-i], before, group))
    for request in dist.batch_isend_irecv(messages) if messages else []:
        request.wait()
