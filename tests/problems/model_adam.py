"""One training step of a perceptron: gradients by autograd, the update by torch's own Adam."""

from typing import Any

import torch
from harness import Spec
from on_ranks import Arguments, Outputs

PARAMETERS = ("W1", "b1", "W2", "b2")


def gradients(arguments: Arguments, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [p.double().requires_grad_() for p in parameters]
    W1, b1, W2, b2 = leaves
    out = torch.relu(arguments["X_local"].double() @ W1.T + b1) @ W2.T + b2
    return list(torch.autograd.grad((out - arguments["y_local"].double()).square().mean(), leaves))


def adam(
    arguments: Arguments, p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor, **changed: Any
) -> Outputs:
    """One step of torch's own optimizer; the new parameter, first and second moment."""
    given = arguments | changed
    leaf = p.double().clone().requires_grad_()
    leaf.grad = g.double()
    optimizer = torch.optim.Adam([leaf], lr=given["lr"], betas=(given["beta1"], given["beta2"]), eps=given["eps"])
    state = optimizer.state[leaf]
    state["step"] = torch.tensor(float(given["step"] - 1))
    state["exp_avg"], state["exp_avg_sq"] = m.double().clone(), v.double().clone()
    optimizer.step()
    return [leaf.detach(), state["exp_avg"], state["exp_avg_sq"]]


def zero(ranks: list[Arguments], *, own: str = "", mean: bool = True, **changed: Any) -> list[Outputs]:
    first, w = ranks[0], len(ranks)
    shapes = [first[name].shape for name in PARAMETERS]
    flat = torch.cat([first[name].double().flatten() for name in PARAMETERS])
    of_all = [torch.cat([g.flatten() for g in gradients(a, [first[n] for n in PARAMETERS])]) for a in ranks]
    total = torch.stack(of_all).sum(0) / (w if mean else 1)
    part = len(flat) // w
    assert len(flat) == part * w
    updated = []
    for r, arguments in enumerate(ranks):
        mine = slice(r * part, (r + 1) * part)
        g = of_all[r] if own == "g" else total
        p = torch.cat([arguments[n].double().flatten() for n in PARAMETERS]) if own == "p" else flat
        updated.append(
            adam(arguments, p[mine], g[mine], arguments["exp_avg_part"], arguments["exp_avg_sq_part"], **changed)
        )
    pieces = torch.cat([own_part[0] for own_part in updated]).split([s.numel() for s in shapes])
    parameters = [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
    return [[*parameters, *own_part[1:]] for own_part in updated]


def check_honest_rounding(spec: Spec) -> None:
    """Everything in float64 and rounded once is another sound way through the dtype: it keeps a distance from failing."""
    for call in range(20):
        ranks = spec.arguments(2, "odd", "bf16", call)
        truth = spec.truth(ranks)
        assert spec.worst(ranks, truth, spec.native(truth, "bf16"), "bf16") < 0.5
