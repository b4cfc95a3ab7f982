"""How many rows of features each rank sends to each other one, in a graph that is cut between them."""

import random

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
