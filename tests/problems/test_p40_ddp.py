"""Problem 40, one DDP step: every rank ends up with one Adam step on the mean gradient."""

from typing import Any

import torch
from harness import ModelTests, Spec
from model_adam import PARAMETERS, adam, check_honest_rounding, gradients
from on_ranks import Arguments, Outputs, all_arguments


def ddp(ranks: list[Arguments], *, own: str = "", mean: bool = True, **changed: Any) -> list[Outputs]:
    """`own`: which of parameters, gradients, m and v a rank wrongly takes from itself."""
    outputs = []
    of_all = [gradients(a, [ranks[0][name] for name in PARAMETERS]) for a in ranks]
    for r, arguments in enumerate(ranks):
        p, m, v = (ranks[r if what in own.split() else 0] for what in ("p", "m", "v"))
        rows = []
        for i, name in enumerate(PARAMETERS):
            g = torch.stack([g[i] for g in of_all]).sum(0) / (len(ranks) if mean else 1) if own != "g" else of_all[r][i]
            rows.append(adam(arguments, p[name], g, m[f"exp_avg_{name}"], v[f"exp_avg_sq_{name}"], **changed))
        outputs.append([row[k] for k in range(3) for row in rows])
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        40,
        ddp,
        honest=0.75,
        zeros=10.0,
        widened_sizes=("odd",),
        exactness=1e-11,
        mistake_calls=tuple(range(6)),
        mistaken_once=5.0,
        mistaken_always=2.0,
        mistakes={
            "own parameters": lambda ranks: ddp(ranks, own="p"),
            "own gradients": lambda ranks: ddp(ranks, own="g"),
            "own first moments": lambda ranks: ddp(ranks, own="m"),
            "own second moments": lambda ranks: ddp(ranks, own="v"),
            "summed gradients": lambda ranks: ddp(ranks, mean=False),
            "no bias correction": lambda ranks: ddp(ranks, step=10**6),
            "no eps": lambda ranks: ddp(ranks, eps=0.0),
        },
        refused=[("", lambda _: {"step": 0})],
    )


def test_honest_rounding_keeps_a_distance() -> None:
    check_honest_rounding(TestModel.spec)


def test_all_steps_occur() -> None:
    assert {all_arguments(40, 4, "tiny", "fp32", call)[1]["step"] for call in range(40)} == set(range(1, 8))
