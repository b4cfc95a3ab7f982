"""Problem 15, tensor- and sequence-parallel MLP: both products whole, rows shared out."""

import numpy as np
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Array, all_arguments, arrays


def combined_sharded_gemms(ranks: list[Arguments]) -> list[list[Array]]:
    hidden = np.concatenate(arrays(ranks, "x_local"), axis=1) @ arrays(ranks, "W1")[0]
    whole = (hidden / (1 + np.exp(-hidden))) @ arrays(ranks, "W2")[0]
    return [[rows] for rows in np.split(whole, len(ranks))]


class TestModel(ModelTests):
    spec = Spec(
        15,
        combined_sharded_gemms,
        ordered=True,
        calls=(0, 3),
        more_cases=((1, "tiny", "fp32"), (3, "odd", "bf16")),
        honest=0.7,
        exactness=1e-12,
        mistaken_always=3.0,
        mistake_calls=(1,),
        mistakes={
            "rows of the next rank": lambda ranks: [
                *combined_sharded_gemms(ranks)[1:],
                combined_sharded_gemms(ranks)[0],
            ]
        },
        refused=[
            ("", lambda a: {"x_local": a["x_local"][:-1]}),
            ("", lambda a: {"W1": a["W1"][:-1]}),
            ("", lambda a: {"W2": a["W2"][:-1]}),
        ],
    )


def test_ranks_share_what_the_layer_replicates() -> None:
    first, *others = all_arguments(15, 4, "tiny", "bf16", 0)
    assert all(torch.equal(first[name], rank[name]) for rank in others for name in ["W1", "W2"])
