"""Problem 47, one FSDP step: the loss of all ranks by autograd, torch's own AdamW."""

import math

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments, joined, wide
from torch.nn import functional as F


def fsdp_step(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    first, w = ranks[0], len(ranks)
    flat = joined(ranks, "flat_param_shard").requires_grad_()
    w1, b1, w2, b2 = (
        part.view(shape)
        for part, shape in zip(
            flat.split([math.prod(s) for s in first["param_shapes"]]), first["param_shapes"], strict=True
        )
    )
    losses = [
        F.mse_loss(F.linear(F.relu(F.linear(wide(a["X_local"]), w1, b1)), w2, b2), wide(a["y_local"])) for a in ranks
    ]
    part = flat.numel() // w
    gradients = [torch.autograd.grad(loss, flat, retain_graph=True)[0] for loss in losses]
    mean = torch.stack(gradients).mean(0) * (w if mistake == "sum instead of mean" else 1)
    outputs = []
    for rank, a in enumerate(ranks):
        own = slice(rank * part, (rank + 1) * part)
        parameter = torch.nn.Parameter(flat.detach()[own].clone())
        parameter.grad = (gradients[rank] if mistake == "own gradient" else mean)[own].clone()
        betas, decay = (a["beta1"], a["beta2"]), 0.0 if mistake == "no weight decay" else a["weight_decay"]
        optimizer = torch.optim.AdamW([parameter], lr=a["lr"], betas=betas, eps=a["eps"], weight_decay=decay)
        moments = {"exp_avg": wide(a["exp_avg_shard"]).clone(), "exp_avg_sq": wide(a["exp_avg_sq_shard"]).clone()}
        optimizer.state[parameter] = {"step": torch.tensor(float(a["step"] - 1)), **moments}
        optimizer.step()
        state = optimizer.state[parameter]
        updated = flat.detach()[own] if mistake == "parameters not updated" else parameter.detach()
        outputs.append([updated, state["exp_avg"], state["exp_avg_sq"]])
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        47,
        fsdp_step,
        every_rank=True,
        spoilt=1.2,
        large_bytes=20e9,
        mistaken_once=1.5,
        mistaken_always=1.5,
        mistake_cases=((4, "tiny", "bf16"), (4, "odd", "bf16")),
        mistakes={
            "own gradient": lambda ranks: fsdp_step(ranks, "own gradient"),
            "sum instead of mean": lambda ranks: fsdp_step(ranks, "sum instead of mean"),
            "parameters not updated": lambda ranks: fsdp_step(ranks, "parameters not updated"),
        },
        refused=[(r"(\d|fit)", lambda _: {"step": 0}), (r"(\d|fit)", lambda _: {"flat_param_shard": torch.zeros(5)})],
    )


def test_weight_decay_counts_in_float32() -> None:
    ranks = all_arguments(47, 4, "odd", "fp32", 0)
    without = [[t.float() for t in own] for own in fsdp_step(ranks, "no weight decay")]
    assert TestModel.spec.worst(ranks, fsdp_step(ranks), without, "fp32") > 10


def test_weight_decay_that_is_left_out_shows() -> None:
    """On some parameter of every rank by twice what is tolerated: a share of the rate and one step of bf16's grid."""
    for size in ("tiny", "odd"):
        for call in range(8):
            for a in all_arguments(47, 4, size, "bf16", call):
                p = a["flat_param_shard"].double().abs()
                assert ((a["lr"] * a["weight_decay"] * p) / (0.125 * a["lr"] + 2**-6 * p)).max() > 2
