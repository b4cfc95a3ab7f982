"""Problem 44, gradients summed after blockwise quantisation, in plain loops."""

import numpy as np
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Array, Outputs

from pkb.problems.p44_quantized_grad_allreduce import CLEARANCE


def quantise(values: Array, block: int) -> Array:
    out = np.empty_like(values)
    for start in range(0, len(values), block):
        piece = values[start : start + block]
        scale = max(np.abs(piece).max(), 1e-8) / 127
        code = piece / scale
        assert np.abs(np.abs(code - np.floor(code)) - 0.5).min() > 0.9 * CLEARANCE  # the promise of the inputs
        out[start : start + block] = np.clip(np.rint(code), -127, 127) * scale
    return out


def quantised_mean(ranks: list[Arguments], *, how: str = "") -> list[Outputs]:
    block = ranks[0]["block_size"]
    own = [a["flat_grad"].double().numpy() for a in ranks]
    terms = own if how == "plain" else [quantise(values, block) for values in own]
    mean = np.stack(terms).mean(axis=0)
    if how == "again":  # as ZeRO++ does before the second exchange
        padded = np.resize(mean, (len(mean) // block, block))
        scale = np.abs(padded).max(axis=1, keepdims=True).clip(1e-8) / 127
        mean[: padded.size] = (np.rint(padded / scale) * scale).flatten()
    return [[torch.from_numpy(mean)]] * len(ranks)


class TestModel(ModelTests):
    spec = Spec(
        44,
        quantised_mean,
        honest=0.75,
        zeros=10.0,
        widened_sizes=("odd",),
        exactness=1e-11,
        mistake_calls=tuple(range(6)),
        mistaken_once=5.0,
        mistaken_always=2.0,
        mistakes={
            "not quantised": lambda ranks: quantised_mean(ranks, how="plain"),
            "quantised again": lambda ranks: quantised_mean(ranks, how="again"),
        },
        refused=[("", lambda _: {"block_size": 0})],
    )
