"""Problem 85, sample sort: one sort of all keys."""

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs


def sample_sort(ranks: list[Arguments]) -> list[Outputs]:
    keys = sorted(key for arguments in ranks for key in arguments["local_shard"].double().tolist())
    short, longer = divmod(len(keys), len(ranks))
    outputs = []
    for rank in range(len(ranks)):
        count = short + (rank < longer)
        outputs.append([torch.tensor(keys[:count], dtype=torch.float64)])
        keys = keys[count:]
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        85,
        sample_sort,
        silent_raises=True,
        honest=0.85,
        spoilt=1.2,
        calls=(1, 2, 5),  # one of each kind
        widened_sizes=("odd",),
    )
