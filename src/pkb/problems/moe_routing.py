"""Tokens, routers and experts of the mixture-of-experts problems: who goes to whom is decided by a clear margin.

Some experts are popular on every rank, so that splits are uneven. Where a problem runs the router itself, the tokens are
corrected until their logits are planned ones, with a gap below the chosen experts: rounding must not decide the route.
"""

from collections.abc import Hashable
from math import comb

import torch

from pkb.problems.base import Size
from pkb.problems.draw import Arguments, Draw

GAP = 0.25
"""How far a token's chosen experts stand above the others in the router's logits."""
SKEW = 0.5
"""The spread of the experts' popularity, in units of the spread of one token's logits."""
CALLS_WITHOUT_ROUTER_BIAS = 0.25
OVERLAP = 0.9
"""Popular experts lie on one rank a little more often than equally popular ones would."""


def tokens_of(size: Size, rank: int) -> int:
    return max(0, size["tokens"] - rank * size.get("fewer", 0))


def mean_tokens(size: Size, world_size: int) -> float:
    return sum(tokens_of(size, rank) for rank in range(world_size)) / world_size


def ranks_per_token(experts: int, top_k: int, world_size: int) -> float:
    """Ranks, out of W, on which a token has at least one of its experts: it is computed once on each of them."""
    if experts == world_size:
        return top_k  # one expert a rank: never two of them on one
    return destinations_per_token(experts, top_k, world_size)


def destinations_per_token(experts: int, top_k: int, world_size: int) -> float:
    """The same for what travels, where more than expected may stay at home when a rank's own experts are popular."""
    nowhere = comb(experts - experts // world_size, top_k) / comb(experts, top_k)
    return OVERLAP * world_size * (1 - nowhere)


def balanced_experts(tokens: int, experts: int, top_k: int) -> torch.Tensor:
    """Experts (T, K) in turn, so that each has as many tokens as any other."""
    return torch.arange(tokens * top_k).remainder(experts).view(tokens, top_k)


def chosen_experts(draw: Draw, source: int) -> torch.Tensor:
    """The experts (T, K) of the tokens of rank `source`, on the host: they decide counts and shapes of other ranks."""
    tokens, experts, top_k = draw.size["tokens"], draw.size["experts"], draw.size["top_k"]
    if draw.even:
        return balanced_experts(tokens, experts, top_k)
    popularity = draw.random("popularity", key="all")
    weights = torch.tensor([popularity.gauss(0.0, SKEW) for _ in range(experts)])
    generator = torch.Generator().manual_seed(draw.random("routing", key=source).getrandbits(62))
    return (torch.randn(tokens, experts, generator=generator) + weights).topk(top_k, dim=1).indices


def draw_moe_layer(draw: Draw, *, experts: int, top_k: int, owner: Hashable | None = None) -> Arguments:
    """Tokens, the router that all ranks share, and the three layers of this rank's expert (`owner`: whose they are)."""
    hidden, ffn = draw.size["hidden"], draw.size["ffn"]
    router = draw.normal("gate_weight", (experts, hidden), scale=hidden**-0.5, key="all")
    bias: torch.Tensor | None = draw.normal("gate_bias", (experts,), key="all")
    if draw.random("router bias", key="all").random() < CALLS_WITHOUT_ROUTER_BIAS:
        bias = None
    return {
        "hidden_states": draw_hidden_states(draw, router, bias, top_k=top_k),
        "gate_weight": router,
        "gate_bias": bias,
        "gate_proj": draw_linear(draw, "gate_proj", inner=hidden, outer=ffn, owner=owner),
        "up_proj": draw_linear(draw, "up_proj", inner=hidden, outer=ffn, owner=owner),
        "down_proj": draw_linear(draw, "down_proj", inner=ffn, outer=hidden, owner=owner),
    }


def draw_hidden_states(draw: Draw, router: torch.Tensor, bias: torch.Tensor | None, *, top_k: int) -> torch.Tensor:
    """Random tokens, corrected within the space of the router's rows so that their logits are the planned ones."""
    tokens, (experts, hidden) = tokens_of(draw.size, draw.rank), router.shape
    leading = (draw.size["batch"], tokens // draw.size["batch"]) if "batch" in draw.size else (tokens,)
    wide = torch.float32
    states = draw.normal("hidden_states", (tokens, hidden), dtype=wide)
    if draw.device.type != "meta":
        logits = draw.normal("logits", (tokens, experts), dtype=wide)
        logits += draw.normal("popularity", (experts,), scale=SKEW, key="all", dtype=wide)
        chosen = logits.topk(top_k, dim=1).indices
        if draw.even:
            chosen = balanced_experts(tokens, experts, top_k).to(draw.device)
            logits.scatter_(1, chosen, logits.amax(dim=1, keepdim=True).expand(-1, top_k))
        logits.scatter_add_(1, chosen, torch.full_like(logits, GAP))
        if bias is not None:
            logits -= bias.to(wide)
        rows = router.to(wide)
        states += (logits - states @ rows.t()) @ torch.linalg.solve(rows @ rows.t(), rows)
    return states.to(draw.dtype).view(*leading, hidden)


def draw_linear(draw: Draw, name: str, *, inner: int, outer: int, owner: Hashable | None = None) -> torch.nn.Linear:
    """A layer with torch's usual weights, and a bias that is large enough to be missed."""
    layer = torch.nn.Linear(inner, outer, device="meta")
    weight = draw.uniform(f"{name} weight", (outer, inner), -(inner**-0.5), inner**-0.5, key=owner)
    bias = draw.uniform(f"{name} bias", (outer,), -0.5, 0.5, key=owner)
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    layer.bias = torch.nn.Parameter(bias, requires_grad=False)
    return layer


def published_layer(draw: Draw, drawn: Arguments) -> Arguments:
    """What the published benchmark draws for a MoE layer: tokens, a router and an expert of each rank's own, not planned,
    not scaled: so nearly all weight is on a token's first expert; biases as torch has them."""
    values: Arguments = {}
    for name, own in drawn.items():
        if isinstance(own, torch.Tensor):
            values[name] = draw.normal(f"{name}, published", tuple(own.shape))
        elif isinstance(own, torch.nn.Linear):
            layer = draw_linear(draw, f"{name}, published", inner=own.in_features, outer=own.out_features)
            layer.bias.mul_(2 * own.in_features**-0.5)  # ours are within 0.5
            values[name] = layer
    return values
