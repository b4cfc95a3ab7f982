"""Problem 26, expert-parallel preprocessing: counts made pair by pair."""

import numpy as np
import torch
from harness import ModelTests, Spec
from model_moe import choices
from on_ranks import Arguments, Outputs


def token_preprocess(ranks: list[Arguments]) -> list[Outputs]:
    w, experts = len(ranks), ranks[0]["num_experts"]
    table = np.zeros((w, experts), dtype=np.int64)
    for source, a in enumerate(ranks):
        for expert, _ in choices(a["expert_mask"]):
            table[source, expert] += 1
    by_owner = table.reshape(w, w, -1)
    outputs = []
    for rank in range(w):
        here = by_owner[:, rank]
        arrays = (by_owner[rank].sum(axis=1), here.sum(axis=1), here, here.sum(axis=0))
        outputs.append([torch.from_numpy(np.ascontiguousarray(array)) for array in arrays])
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        26,
        token_preprocess,
        results=(None, None, torch.float32, torch.float32),
        refused=[("7 experts", lambda _: {"num_experts": 7})],
    )
