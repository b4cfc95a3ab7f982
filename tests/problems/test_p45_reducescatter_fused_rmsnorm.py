"""Problem 45, reduce-scatter and RMSNorm: the mean of all ranks, normalised row by row."""

import numpy as np
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs


def mean_rmsnorm(ranks: list[Arguments], *, divide: bool = True, eps: bool = True) -> list[Outputs]:
    first, w = ranks[0], len(ranks)
    gamma = first["gamma"].double().numpy()
    mean = np.stack([a["rs_input_1d"].double().numpy() for a in ranks]).sum(0) / (w if divide else 1)
    rows = mean.reshape(w, -1, len(gamma))
    y = rows / np.sqrt((rows**2).mean(-1, keepdims=True) + (first["eps"] if eps else 0.0)) * gamma
    return [[torch.from_numpy(y[r])] for r in range(w)]


class TestModel(ModelTests):
    spec = Spec(
        45,
        mean_rmsnorm,
        honest=0.75,
        zeros=10.0,
        widened_sizes=("odd",),
        exactness=1e-11,
        mistake_calls=tuple(range(6)),
        mistaken_once=5.0,
        mistaken_always=2.0,
        mistakes={
            "norm of the sum": lambda ranks: mean_rmsnorm(ranks, divide=False),
            "no eps": lambda ranks: mean_rmsnorm(ranks, eps=False),
        },
        refused=[("", lambda _: {"rs_input_1d": torch.ones(10), "gamma": torch.ones(4)})],
    )
