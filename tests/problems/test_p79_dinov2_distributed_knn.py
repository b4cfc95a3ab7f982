"""Problem 79, distributed k-NN: one sort over all training samples."""

import pytest
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments, joined

from pkb.problems.compare import Context
from pkb.problems.p79_dinov2_distributed_knn import SameNeighbours


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


@pytest.mark.parametrize("size", ["tiny", "odd"])
def test_rounding_decides_neither_who_is_found_nor_where(size: str) -> None:
    for call in range(3):
        ranks = all_arguments(79, 4, size, "bf16", call)
        train = joined(ranks, "train_features_rank_T", 1)
        for arguments in ranks:
            similar = (arguments["test_features_rank"].double() @ train).topk(arguments["max_k"] + 1, dim=1).values
            step = torch.exp2(similar[:, :-1].log2().floor()) / 128
            assert float((-similar.diff(dim=1) / step).min()) > 1.4


def test_labels_at_another_place_are_refused() -> None:
    """As a merge leaves them that swaps similarities, and not the labels beside them."""
    truth = torch.arange(63).view(7, 9)
    context = Context(arguments={}, rank=0, world_size=4, dtype=torch.bfloat16)
    assert SameNeighbours()(truth, truth.clone(), context) == 0
    for places in ([1, 0, 3, 2, 5, 4, 7, 6, 8], [0, 1, 2, 3, 4, 5, 6, 8, 7]):
        assert SameNeighbours()(truth, truth[:, places], context) > 1
    invented = truth.clone()
    invented[:, -1] = 99
    assert SameNeighbours()(truth, invented, context) > 1
