"""Problem 17, rotary embedding and all-gather: pairs of coordinates turned one by one."""

import numpy as np
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Array, Outputs, arrays


def rotated(x: Array, cos: Array, sin: Array) -> Array:
    """Element i and i + D/2 are the two coordinates of a point that is turned."""
    out, half = np.empty_like(x), x.shape[-1] // 2
    for i in range(half):
        here, there = x[..., i], x[..., i + half]
        out[..., i] = here * cos[:, :, None, i] - there * sin[:, :, None, i]
        out[..., i + half] = there * cos[:, :, None, i + half] + here * sin[:, :, None, i + half]
    return out


def rope_allgather(ranks: list[Arguments]) -> list[list[Array]]:
    q, k, cos, sin = (
        np.concatenate(arrays(ranks, f"{name}_local"), axis=1) for name in ("q", "k", "cos", "sin")
    )  # fmt: skip
    return [[rotated(q, cos, sin), rotated(k, cos, sin)]] * len(ranks)


def shards_not_interleaved(ranks: list[Arguments]) -> list[Outputs]:
    """The gathered buffer of W shards taken for the result: right for a batch of one only."""
    whole = [torch.from_numpy(t) for t in rope_allgather(ranks)[0]]
    return [[torch.cat(t.chunk(len(ranks), dim=1)).reshape(t.shape) for t in whole] for _ in ranks]


def unturned(ranks: list[Arguments]) -> list[Outputs]:
    return [[torch.cat([a[f"{n}_local"] for a in ranks], dim=1) for n in ("q", "k")] for _ in ranks]


class TestModel(ModelTests):
    spec = Spec(
        17,
        rope_allgather,
        ordered=True,
        calls=(0, 3),
        more_cases=((1, "tiny", "fp32"), (3, "odd", "bf16")),
        honest=0.7,
        exactness=1e-12,
        mistaken_always=3.0,
        mistake_calls=(1,),
        mistakes={"shards not interleaved": shards_not_interleaved, "not turned": unturned},
        refused=[
            ("", lambda a: {"q_local": a["q_local"][..., :-1]}),
            ("", lambda a: {"k_local": a["k_local"][..., :-1]}),
        ],
    )
