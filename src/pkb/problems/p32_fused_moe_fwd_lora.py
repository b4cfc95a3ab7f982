"""Mixture-of-experts layer whose experts carry LoRA adapters: route, dispatch, apply, bring back.

VeOmni's expert-parallel layer with adapters. As in `fused_moe_fwd`: rank r holds its tokens (T, H), the router
(gate_weight, gate_bias or None), equal on all ranks, and one SwiGLU MLP with bias that serves all E / W experts of the
rank. The router's softmax, rounded to the dtype, gives each token its top_k experts and weights, not normalised again.
Each token goes to the ranks of its experts; the results come back and are added with the weights, rounded first. Every
rank returns the result for its own tokens, always as (T, H). Here each of the three linear layers has a low-rank side
path: the layer's result is rounded, then rd(rd(x @ A.T) @ B.T) is added to it and the sum rounded. There is no alpha /
rank factor, no dropout and no bias in the adapters, and they are the rank's own.

Counts, rows out, rows back are three dependent exchanges. A good kernel does what one for `fused_moe_fwd` does, and
computes the narrow products from the same tiles of rows that the wide ones read, instead of reading all rows twice.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.expert_exchange import by_rows, gated, moe_layer
from pkb.problems.moe_routing import (
    destinations_per_token,
    draw_moe_layer,
    mean_tokens,
    published_layer,
    ranks_per_token,
)
from pkb.problems.sharding import why_not_equal
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # tokens of rank 0; each next rank has `fewer` less. With `batch`, hidden states are (batch, T / batch, H)
    "tiny": {"tokens": 24, "hidden": 32, "ffn": 24, "lora": 4, "experts": 8, "top_k": 2, "batch": 2},
    "paper": {"tokens": 1024, "hidden": 1024, "ffn": 128, "lora": 8, "experts": 8, "top_k": 2},
    # Mixtral-8x7B, EP 8.
    "real": {"tokens": 8192, "hidden": 4096, "ffn": 14336, "lora": 16, "experts": 8, "top_k": 2},
    "odd": {"tokens": 43, "hidden": 67, "ffn": 29, "lora": 5, "experts": 24, "top_k": 3, "fewer": 7},
}


def draw_adapter(draw: Draw, name: str, *, inner: int, outer: int) -> dict[str, torch.Tensor]:
    """The two factors of a side path, scaled so that it weighs about as much as the layer itself."""
    lora = draw.size["lora"]
    return {
        f"{name}_A": draw.normal(f"{name}_A", (lora, inner), scale=inner**-0.5),
        f"{name}_B": draw.normal(f"{name}_B", (outer, lora), scale=0.5 * lora**-0.5),
    }


def inputs(draw: Draw) -> Arguments:
    hidden, ffn, experts, top_k = (draw.size[name] for name in ("hidden", "ffn", "experts", "top_k"))
    return {
        **draw_moe_layer(draw, experts=experts, top_k=top_k),
        **draw_adapter(draw, "lora_gate", inner=hidden, outer=ffn),
        **draw_adapter(draw, "lora_up", inner=hidden, outer=ffn),
        **draw_adapter(draw, "lora_down", inner=ffn, outer=hidden),
        "num_experts": experts,  # both belong to the model, and to the size
        "top_k": top_k,
        "group": draw.group("world"),
    }


def solution(
    hidden_states: torch.Tensor,
    gate_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    gate_proj: torch.nn.Linear,
    up_proj: torch.nn.Linear,
    down_proj: torch.nn.Linear,
    lora_gate_A: torch.Tensor,
    lora_gate_B: torch.Tensor,
    lora_up_A: torch.Tensor,
    lora_up_B: torch.Tensor,
    lora_down_A: torch.Tensor,
    lora_down_B: torch.Tensor,
    num_experts: int,
    top_k: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    world_size, rank = dist.get_world_size(group), dist.get_rank(group)
    if num_experts % world_size or top_k > num_experts:
        raise ValueError(f"the top {top_k} of {num_experts} experts on {world_size} ranks")
    local_experts = num_experts // world_size
    linear, silu = torch.nn.functional.linear, torch.nn.functional.silu

    for layer, a, b in (
        (gate_proj, lora_gate_A, lora_gate_B),
        (up_proj, lora_up_A, lora_up_B),
        (down_proj, lora_down_A, lora_down_B),
    ):
        if (b.shape[0], a.shape[1]) != layer.weight.shape or a.shape[0] != b.shape[1]:
            raise ValueError(f"adapters {tuple(a.shape)}, {tuple(b.shape)} do not fit {tuple(layer.weight.shape)}")

    def adapted(x: torch.Tensor, layer: torch.nn.Linear, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return linear(x, layer.weight, layer.bias) + linear(linear(x, a), b)

    # Route: the rows to send, ordered by expert, then by token.
    hidden = hidden_states.reshape(-1, hidden_states.shape[-1])
    probabilities = linear(hidden, gate_weight, gate_bias).softmax(dim=-1)  # float32 inside, rounded to the dtype
    weights, experts = probabilities.topk(top_k, dim=-1)
    order = experts.reshape(-1).argsort(stable=True)
    token_of_row = order // top_k
    row_weights = weights.reshape(-1)[order]

    # Exchange counts, so that every rank knows how many rows come from where.
    counts = torch.bincount(experts.reshape(-1), minlength=num_experts)
    all_counts = torch.empty(world_size * num_experts, dtype=counts.dtype, device=counts.device)
    dist.all_gather_into_tensor(all_counts, counts, group=group)
    matrix = all_counts.view(world_size, world_size, local_experts).sum(dim=2).tolist()  # [source][destination]
    send, receive = matrix[rank], [row[rank] for row in matrix]

    # Dispatch. One MLP serves all experts of a rank, so rows need not be sorted by expert.
    received = torch.empty((sum(receive), hidden.shape[1]), dtype=hidden.dtype, device=hidden.device)
    dist.all_to_all_single(received, hidden[token_of_row], receive, send, group=group)
    gate = silu(adapted(received, gate_proj, lora_gate_A, lora_gate_B))
    up = adapted(received, up_proj, lora_up_A, lora_up_B)
    result = adapted(gate * up, down_proj, lora_down_A, lora_down_B)

    # Combine: results come back in the order in which the rows left.
    returned = torch.empty((sum(send), hidden.shape[1]), dtype=result.dtype, device=result.device)
    dist.all_to_all_single(returned, result, send, receive, group=group)
    out = torch.zeros_like(hidden)
    return out.index_add_(0, token_of_row, returned * row_weights[:, None])


Adapted = tuple[torch.nn.Linear, torch.Tensor, torch.Tensor]


def _adapted_mlp(gate: Adapted, up: Adapted, down: Adapted) -> Callable[[torch.Tensor], torch.Tensor]:
    linear = torch.nn.functional.linear

    def adapted(x: torch.Tensor, layer: torch.nn.Linear, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return linear(x, layer.weight, layer.bias).addmm_(linear(x, a), b.t())

    return lambda x: adapted(gated(adapted(x, *gate), adapted(x, *up)), *down)


def baseline(
    hidden_states: torch.Tensor,
    gate_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    gate_proj: torch.nn.Linear,
    up_proj: torch.nn.Linear,
    down_proj: torch.nn.Linear,
    lora_gate_A: torch.Tensor,
    lora_gate_B: torch.Tensor,
    lora_up_A: torch.Tensor,
    lora_up_B: torch.Tensor,
    lora_down_A: torch.Tensor,
    lora_down_B: torch.Tensor,
    num_experts: int,
    top_k: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Tokens travel once to each rank that has experts of theirs, and side paths are added to the layers' results in place."""
    mlp = _adapted_mlp(
        (gate_proj, lora_gate_A, lora_gate_B), (up_proj, lora_up_A, lora_up_B), (down_proj, lora_down_A, lora_down_B)
    )
    return moe_layer(hidden_states, (gate_weight, gate_bias), mlp, num_experts, top_k, group)


def exact(
    hidden_states: torch.Tensor,
    gate_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    gate_proj: torch.nn.Linear,
    up_proj: torch.nn.Linear,
    down_proj: torch.nn.Linear,
    lora_gate_A: torch.Tensor,
    lora_gate_B: torch.Tensor,
    lora_up_A: torch.Tensor,
    lora_up_B: torch.Tensor,
    lora_down_A: torch.Tensor,
    lora_down_B: torch.Tensor,
    num_experts: int,
    top_k: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """The MLP for a few rows at a time."""
    mlp = _adapted_mlp(
        (gate_proj, lora_gate_A, lora_gate_B), (up_proj, lora_up_A, lora_up_B), (down_proj, lora_down_A, lora_down_B)
    )
    return moe_layer(hidden_states, (gate_weight, gate_bias), by_rows(mlp), num_experts, top_k, group)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, hidden, ffn, experts, top_k = world_size, size["hidden"], size["ffn"], size["experts"], size["top_k"]
    adapters = 3 * size["lora"] * (hidden + ffn)
    tokens = mean_tokens(size, w)
    rows = ranks_per_token(experts, top_k, w) * tokens
    return Cost.all_to_all(
        2 * destinations_per_token(experts, top_k, w) * tokens * hidden * element_bytes,
        w,
        phases=2,
        flops=2 * tokens * hidden * experts + rows * (6 * hidden * ffn + 2 * adapters),
        hbm_bytes=(2 * tokens * hidden + experts * hidden + 3 * hidden * ffn + adapters) * element_bytes,
        note="an average rank; a token is sent, computed and returned once for all its experts on one rank; counts ride with "
        "the rows, where the reference sends them first",
    )


def requires(size: Size, world_size: int) -> str | None:
    return why_not_equal(size["experts"], "experts", world_size)


PROBLEM = Problem(
    id=32,
    name="fused_moe_fwd_lora",
    source="VeOmni, expert-parallel MoE layer with LoRA adapters",
    taxonomy=Taxonomy(
        parallelism=("ep",),
        layer="moe",
        stage=("training-forward",),
        pattern=("all-gather", "all-to-all-v"),
        system="RL post-training",
        fusable="router GEMM with softmax and top-k, permutation, three expert GEMMs with low-rank side paths, weighted sum",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published_layer,
    reference=solution,
    exact=exact,
    baseline=baseline,
    reference_faster_at=("real",),
    cost=cost,
    compare=NormGate(tau={torch.bfloat16: 2.4e-2, torch.float16: 3e-3}),  # ten roundings one after another
    version=3,  # real has all of its 8192 tokens a rank
    requires=requires,
)
