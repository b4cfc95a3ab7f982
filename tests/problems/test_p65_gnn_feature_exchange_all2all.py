"""Problem 65, features sent to the ranks that asked for them."""

import random
from functools import partial

import torch
from harness import ModelTests, Spec
from model_chunks import pieces
from on_ranks import Arguments, Outputs

from pkb.problems.graph_chunks import chunk_matrix


def feature_exchange(ranks: list[Arguments], mistake: bool = False) -> list[Outputs]:
    """Mistake: chunk i is taken to be for peer i."""
    w = len(ranks)
    chunks = [pieces(a["local_features"][a["seed_inverse_ids"]], a["counts_received"]) for a in ranks]
    results = []
    for r in range(w):
        sources = [(i if mistake else (r + i) % w) for i in range(w)]
        results.append([torch.cat([chunks[s][r if mistake else (r - s) % w] for s in sources]).double()])
    return results


class TestModel(ModelTests):
    spec = Spec(
        65,
        feature_exchange,
        honest=0.7,
        widened_sizes=("odd",),
        exactness=1e-10,
        large_bytes=12e9,
        more_cases=((1, "odd", "fp32"),),
        mistakes={"chunk i taken to be for peer i": partial(feature_exchange, mistake=True)},
        mistake_cases=[(w, size, dtype) for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp32", "bf16")],
        widened=False,
        silent_raises=True,
    )


def test_chunks_are_uneven_and_every_rank_hears_from_another() -> None:
    zeros = 0
    for seed in range(50):
        matrix = chunk_matrix(4, 12, random.Random(seed))
        assert sum(map(sum, matrix)) == 4 * 4 * 12
        assert sum(matrix[i][i] for i in range(4)) == 4 * 12
        zeros += sum(row.count(0) for row in matrix)
        assert all(sum(matrix[s][d] for s in range(4) if s != d) for d in range(4))
    assert zeros > 50
