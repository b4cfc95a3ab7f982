"""Problem 33, Ulysses all-to-all of a tensor: blocks along one axis, joined along another."""

import numpy as np
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments


def ulysses_all_to_all(ranks: list[Arguments]) -> list[Outputs]:
    w, scatter, gather = len(ranks), ranks[0]["scatter_dim"], ranks[0]["gather_dim"]
    blocks = [np.split(a["x"].double().numpy(), w, axis=scatter) for a in ranks]
    return [[torch.from_numpy(np.concatenate([own[r] for own in blocks], axis=gather))] for r in range(w)]


class TestModel(ModelTests):
    spec = Spec(
        33,
        ulysses_all_to_all,
        refused=[("equal chunks", lambda _: {"x": torch.zeros(3, 3), "scatter_dim": 0})],
    )


def test_calls_cover_all_pairs_of_axes() -> None:
    dims = {
        (a["scatter_dim"] % 3, a["gather_dim"] % 3)
        for call in range(80)
        for a in all_arguments(33, 2, "tiny", "fp32", call)
    }
    assert len(dims) == 9
