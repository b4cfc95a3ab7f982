"""Mixtures of experts: which token goes to which expert, and layers worked out without sending anything."""

import copy
from collections.abc import Callable

import torch
from harness import Spec
from on_ranks import SECRET, Arguments, Outputs, wide
from torch.nn import functional as F

from pkb.problems import get
from pkb.problems.draw import Draw


def choices(mask: torch.Tensor) -> list[tuple[int, int]]:
    """The (expert, token) pairs of a one-hot mask (E, K, T), with repetitions, in the order expert, token."""
    return sorted((int(x), t) for column in mask.argmax(dim=0) for t, x in enumerate(column))


def fused_moe(ranks: list[Arguments]) -> list[Outputs]:
    local = ranks[0]["num_experts"] // len(ranks)

    def layer(x: torch.Tensor, a: Arguments, name: str) -> torch.Tensor:
        linear = a[f"{name}_proj"]
        out = x @ linear.weight.double().T + linear.bias.double()
        if f"lora_{name}_A" in a:
            out = out + x @ (a[f"lora_{name}_B"].double() @ a[f"lora_{name}_A"].double()).T
        return out

    outputs = []
    for a in ranks:
        x = a["hidden_states"].double().flatten(0, -2)
        logits = x @ a["gate_weight"].double().T
        logits = logits if a["gate_bias"] is None else logits + a["gate_bias"].double()
        ordered = logits.sort(descending=True, dim=1).values
        clearance = ordered[:, a["top_k"] - 1] - ordered[:, a["top_k"]]
        assert not len(x) or float(clearance.min()) > 0.15, "the promise of the inputs: no route is in doubt"
        weights = (logits.exp() / logits.exp().sum(1, keepdim=True)) * (logits >= ordered[:, a["top_k"] - 1, None])
        out = torch.zeros_like(x)
        for owner, b in enumerate(ranks):
            gate, up = layer(x, b, "gate"), layer(x, b, "up")
            share = weights[:, owner * local : (owner + 1) * local].sum(1, keepdim=True)
            out += share * layer(gate / (1 + (-gate).exp()) * up, b, "down")
        outputs.append([out])
    return outputs


def moe(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    """Token by token: softmax, the chosen experts, and the MLP of the rank that owns each."""
    experts, top_k = ranks[0]["num_experts"], ranks[0]["top_k"]
    block = min(len(ranks), experts)

    def layer(linear: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        return wide(linear.weight) @ x + (0 if mistake == "no layer bias" else wide(linear.bias))

    outputs = []
    for rank, a in enumerate(ranks):
        hidden = wide(a["hidden_states"]).flatten(0, -2)
        out = torch.zeros_like(hidden)
        for token, x in enumerate(hidden):
            bias = 0 if a["gate_bias"] is None else wide(a["gate_bias"])
            p = (wide(a["gate_weight"]) @ x + bias).exp()
            p = p / p.sum()
            best = sorted(range(experts), key=lambda e, p=p: -float(p[e]))  # type: ignore[misc]
            if len(best) > top_k:  # the promise of the inputs: rounding does not decide the route
                assert float(p[best[top_k - 1]] / p[best[top_k]]) > 1.2
            total = float(p[best[:top_k]].sum()) if mistake == "weights normalised" else 1.0
            for expert in best[:top_k]:
                owner = rank // block * block + expert * block // experts
                if mistake == "own expert":
                    owner = rank
                o = ranks[owner]
                inner = F.silu(layer(o["gate_proj"], x)) * layer(o["up_proj"], x)
                out[token] += p[expert] / total * layer(o["down_proj"], inner)
        outputs.append([out])
    return outputs


def least_rows_cost(
    number: int, world_size: int, experts_of: Callable[[Arguments], torch.Tensor], *, ways: int
) -> None:
    """The cost of a link is a minimum for every call: a token crosses once for each other rank that has one of its experts."""
    problem = get(number)
    size = dict(problem.sizes["paper"]) | {"hidden": 16, "ffn": 8}
    for call in range(3):
        rows = []
        for rank in range(world_size):
            draw = Draw(
                secret=SECRET, call=call, rank=rank, world_size=world_size, size=size, dtype=torch.float32,
                device=torch.device("cpu"),
            )  # fmt: skip
            experts = experts_of(problem.inputs(draw))
            owners = torch.zeros(len(experts), world_size).scatter(1, experts * world_size // size["experts"], 1.0)
            rows.append(float(owners.sum() - owners[:, rank].sum()))
        average = sum(rows) / world_size  # the busiest rank has more
        assert 0.8 * average < problem.cost(size, world_size, 4).link_sent_bytes / (4 * 16 * ways) <= average


def routed(a: Arguments) -> torch.Tensor:
    """The two experts of each token, by the router's own logits."""
    logits = a["hidden_states"] @ a["gate_weight"].T
    return (logits if a["gate_bias"] is None else logits + a["gate_bias"]).topk(2).indices


def check_every_part_weighs(spec: Spec) -> None:
    """The second expert, biases and adapters must show in the result, or a kernel could leave them out."""
    ranks = spec.arguments(2, "paper", "fp32", 1)
    ranks = [a | {"hidden_states": a["hidden_states"][:32]} for a in ranks]
    truth = fused_moe(ranks)
    for name in ("gate_proj", "up_proj", "down_proj", *(n for n in ranks[0] if n.endswith("_B"))):
        changed = [copy.deepcopy({k: v for k, v in a.items() if k != "group"}) for a in ranks]
        for a in changed:
            (a[name].bias.data if name.endswith("proj") else a[name]).zero_()
        outputs = [[t.to(torch.bfloat16) for t in own] for own in fused_moe(changed)]
        assert spec.worst(ranks, truth, outputs, "bf16") > 5, name
