"""Problem 18, tensor-parallel RMSNorm: whole rows."""

import numpy as np
from harness import ModelTests, Spec
from on_ranks import Arguments, Array, arrays


def tp_rms_norm(ranks: list[Arguments], *, epsilon: float | None = None) -> list[list[Array]]:
    x, weight = (
        np.concatenate(arrays(ranks, "local_hidden_states"), axis=1),
        np.concatenate(arrays(ranks, "local_weight")),
    )
    epsilon = ranks[0]["variance_epsilon"] if epsilon is None else epsilon
    whole = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + epsilon) * weight
    return [[columns] for columns in np.split(whole, len(ranks), axis=1)]


class TestModel(ModelTests):
    spec = Spec(
        18,
        tp_rms_norm,
        ordered=True,
        calls=(0, 3),
        more_cases=((1, "tiny", "fp32"), (3, "odd", "bf16")),
        honest=0.7,
        exactness=1e-12,
        mistaken_always=3.0,
        mistake_calls=(1,),
        mistakes={
            "mean square of own columns": lambda ranks: [tp_rms_norm([a])[0] for a in ranks],
            "no epsilon": lambda ranks: tp_rms_norm(ranks, epsilon=0.0),
        },
        refused=[("", lambda a: {"local_weight": a["local_weight"][:-1]})],
    )
