"""Problem 66, gradients of features sent back and added up."""

from functools import partial

import torch
from harness import ModelTests, Spec
from model_chunks import pieces
from on_ranks import Arguments, Outputs


def feature_exchange_backward(ranks: list[Arguments], mistake: bool = False) -> list[Outputs]:
    """Mistake: of several gradients of one row the last one wins."""
    w = len(ranks)
    chunks = [pieces(a["grad_output"].double(), a["counts_sent"]) for a in ranks]
    results = []
    for r, a in enumerate(ranks):
        arrived = torch.cat([chunks[(r + i) % w][(-i) % w] for i in range(w)])
        assert [len(chunks[(r + i) % w][(-i) % w]) for i in range(w)] == a["counts_received"]
        out = torch.zeros(a["seed_size"], arrived.shape[1], dtype=torch.float64)
        for row, seed in zip(arrived, a["seed_inverse_ids"].tolist(), strict=True):
            out[seed] = row if mistake else out[seed] + row
        results.append([out])
    return results


class TestModel(ModelTests):
    spec = Spec(
        66,
        feature_exchange_backward,
        honest=0.7,
        widened_sizes=("odd",),
        exactness=1e-10,
        large_bytes=12e9,
        more_cases=((1, "odd", "fp32"),),
        mistakes={"the last gradient wins": partial(feature_exchange_backward, mistake=True)},
        mistake_cases=[(w, size, dtype) for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp32", "bf16")],
        silent_raises=True,
    )
