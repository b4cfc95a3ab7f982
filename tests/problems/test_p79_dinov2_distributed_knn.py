"""Problem 79, distributed k-NN: one sort over all training samples."""

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, joined


def nearest(ranks: list[Arguments]) -> list[Outputs]:
    train, labels = joined(ranks, "train_features_rank_T", 1), torch.cat([a["train_labels_rank"][0] for a in ranks])
    assert len(labels.unique()) == len(labels)
    outputs = []
    for arguments in ranks:
        similar = arguments["test_features_rank"].double() @ train
        order = similar.argsort(dim=1, descending=True)[:, : arguments["max_k"]]
        rounded = similar.to(arguments["test_features_rank"].dtype).sort(dim=1, descending=True).values
        outputs.append([rounded[:, : arguments["max_k"]], labels[order]])
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        79,
        nearest,
        honest=0.85,
        spoilt=1.2,
        calls=(0, 1),
        widened_sizes=("odd",),
    )
