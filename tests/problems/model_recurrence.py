"""The delta rule, one position after another."""

import torch
from harness import Spec


def unit(x: torch.Tensor) -> torch.Tensor:
    return x / (x * x).sum(-1, keepdim=True).sqrt()


def delta_rule(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, decay: torch.Tensor, rate: torch.Tensor
) -> torch.Tensor:
    """(B, T, H, size), decay (B, T, H, key size), rate (B, T, H), one position after another."""
    batch, tokens, heads, key = q.shape
    state = torch.zeros(batch, heads, key, v.shape[-1], dtype=torch.float64)
    outputs = []
    for t in range(tokens):
        state = decay[:, t, :, :, None] * state
        surprise = v[:, t] - torch.einsum("bhk,bhkv->bhv", k[:, t], state)
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], rate[:, t, :, None] * surprise)
        outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, t], state))
    return torch.stack(outputs, dim=1)


def check_memory(spec: Spec, silence: float) -> None:
    """States must remember more than the neighbour's last positions, or an exchange of those would pass."""
    ranks = spec.arguments(2, "odd", "bf16", 0)
    truth = spec.truth(ranks)
    forgetful = ranks[0] | {"beta": ranks[0]["beta"].clone()}
    forgetful["beta"][:, : forgetful["beta"].shape[1] // 2] = silence  # the first half of the positions writes nothing
    outputs = [truth[0], spec.truth([forgetful, ranks[1]])[1]]
    assert spec.worst(ranks, truth, spec.native(outputs, "bf16"), "bf16") > 2
