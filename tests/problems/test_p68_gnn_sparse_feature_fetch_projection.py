"""Problem 68, features fetched from their owners and projected."""

from functools import partial

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs


def feature_fetch(ranks: list[Arguments], mistake: bool = False) -> list[Outputs]:
    """Mistake: rows stay in the order in which their owners sent them."""
    table = torch.cat([a["local_embedding_shard"].double() for a in ranks])
    assert len(table) == ranks[0]["num_total_nodes"]
    results = []
    for a in ranks:
        ids = a["input_node_ids"]
        shard = -(-len(table) // len(ranks))
        ids = torch.tensor(sorted(ids.tolist(), key=lambda i: i // shard)) if mistake else ids
        results.append([table[ids] @ a["proj_matrix"].double()])
    return results


class TestModel(ModelTests):
    spec = Spec(
        68,
        feature_fetch,
        honest=0.7,
        widened_sizes=("odd",),
        exactness=1e-10,
        large_bytes=12e9,
        more_cases=((1, "odd", "fp32"),),
        mistakes={"rows in the order of their owners": partial(feature_fetch, mistake=True)},
        mistake_cases=[(w, size, dtype) for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp32", "bf16")],
        silent_raises=True,
    )
