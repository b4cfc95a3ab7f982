"""Problem 9, LayerNorm backward: gradients of the parameters over all rows at once."""

import numpy as np
from harness import ModelTests, Spec
from on_ranks import Arguments, Array, arrays


def layernorm_backward(ranks: list[Arguments]) -> list[list[Array]]:
    x, dy = np.concatenate(arrays(ranks, "X_hat")), np.concatenate(arrays(ranks, "dY"))
    return [[np.einsum("ij,ij->j", x, dy), dy.sum(axis=0)]] * len(ranks)


class TestModel(ModelTests):
    spec = Spec(
        9,
        layernorm_backward,
        ordered=True,
        calls=(0, 3),
        more_cases=((1, "tiny", "fp32"), (3, "odd", "bf16")),
        honest=0.7,
        exactness=1e-12,
        mistaken_always=3.0,
        mistake_calls=(1,),
        mistakes={"vectors swapped": lambda ranks: [own[::-1] for own in layernorm_backward(ranks)]},
        refused=[("", lambda a: {"dY": a["dY"][:, :-1]})],
    )
