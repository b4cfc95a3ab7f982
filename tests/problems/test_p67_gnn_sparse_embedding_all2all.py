"""Problem 67, sparse rows pushed to their owners."""

from functools import partial

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs


def sparse_push(ranks: list[Arguments], mistake: bool = False) -> list[Outputs]:
    """Mistake: pairs arrive in the order of their index, as an unstable bucket sort might leave them."""
    results = []
    for r in range(len(ranks)):
        pairs = [
            (a["idx"], a["value"], j) for a in ranks for j in range(len(a["idx"])) if a["idx"][j] % len(ranks) == r
        ]
        if mistake:
            pairs.sort(key=lambda pair: int(pair[0][pair[2]]))
        idx = torch.tensor([int(i[j]) for i, _, j in pairs], dtype=torch.int64)
        width = ranks[0]["value"].shape[1]
        results.append([idx, torch.cat([torch.empty(0, width), *(v[j : j + 1] for _, v, j in pairs)]).double()])
    return results


class TestModel(ModelTests):
    spec = Spec(
        67,
        sparse_push,
        honest=0.7,
        widened_sizes=("odd",),
        exactness=1e-10,
        large_bytes=12e9,
        more_cases=((1, "odd", "fp32"),),
        mistakes={"pairs in the order of their index": partial(sparse_push, mistake=True)},
        mistake_cases=[(w, size, dtype) for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp32", "bf16")],
        widened=False,
        silent_raises=True,
    )
