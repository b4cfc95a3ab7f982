"""Mixture-of-experts layer: route tokens, send them to their experts, apply the experts, bring the results back.

VeOmni's expert-parallel layer, after Megatron-LM's token dispatcher. Rank r holds its tokens (T, H), the router
(gate_weight, gate_bias or None), equal on all ranks, and one SwiGLU MLP (three linear layers with bias). The router's
softmax over E experts, rounded to the dtype, gives each token its top_k experts and their weights, which are not
normalised again. Expert x lives on rank x // L, with L = E / W, and all L experts of a rank are its one MLP: so out[t]
= sum over the chosen experts x of weight[t, x] * MLP of rank x // L (hidden[t]). Every rank returns the result for its
own tokens, always as (T, H). Every intermediate result is rounded to the dtype. Ranks may have different numbers of
tokens, or none.

How many rows arrive is known only when all have routed: counts, then rows out, then rows back, three dependent
exchanges, and in the reference a wait for the host in between. A good kernel writes rows to places it reserves on the
peer (room for the worst case), starts an expert's matrix products when a tile of rows is there, sends results back
tile by tile, and sends a token that has two experts on one rank only once.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.expert_exchange import by_rows, moe_layer, swiglu
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
    "tiny": {"tokens": 24, "hidden": 32, "ffn": 24, "experts": 8, "top_k": 2, "batch": 2},
    "paper": {"tokens": 1024, "hidden": 1024, "ffn": 128, "experts": 8, "top_k": 2},
    # Mixtral-8x7B, EP 8.
    "real": {"tokens": 8192, "hidden": 4096, "ffn": 14336, "experts": 8, "top_k": 2},
    "odd": {"tokens": 43, "hidden": 67, "ffn": 29, "experts": 24, "top_k": 3, "fewer": 7},
    "decode": {
        "tokens": 64,
        "hidden": 4096,
        "ffn": 14336,
        "experts": 8,
        "top_k": 2,
        "fewer": 5,
    },  # 64 sequences and fewer
}


def inputs(draw: Draw) -> Arguments:
    experts, top_k = draw.size["experts"], draw.size["top_k"]
    return {
        **draw_moe_layer(draw, experts=experts, top_k=top_k),
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
    num_experts: int,
    top_k: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    world_size, rank = dist.get_world_size(group), dist.get_rank(group)
    if num_experts % world_size or top_k > num_experts:
        raise ValueError(f"the top {top_k} of {num_experts} experts on {world_size} ranks")
    local_experts = num_experts // world_size
    linear, silu = torch.nn.functional.linear, torch.nn.functional.silu

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
    gate = silu(linear(received, gate_proj.weight, gate_proj.bias))
    up = linear(received, up_proj.weight, up_proj.bias)
    result = linear(gate * up, down_proj.weight, down_proj.bias)

    # Combine: results come back in the order in which the rows left.
    returned = torch.empty((sum(send), hidden.shape[1]), dtype=result.dtype, device=result.device)
    dist.all_to_all_single(returned, result, send, receive, group=group)
    out = torch.zeros_like(hidden)
    return out.index_add_(0, token_of_row, returned * row_weights[:, None])


def baseline(
    hidden_states: torch.Tensor,
    gate_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    gate_proj: torch.nn.Linear,
    up_proj: torch.nn.Linear,
    down_proj: torch.nn.Linear,
    num_experts: int,
    top_k: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Tokens travel once to each rank that has experts of theirs."""
    mlp = swiglu(gate_proj, up_proj, down_proj)
    return moe_layer(hidden_states, (gate_weight, gate_bias), mlp, num_experts, top_k, group)


def exact(
    hidden_states: torch.Tensor,
    gate_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    gate_proj: torch.nn.Linear,
    up_proj: torch.nn.Linear,
    down_proj: torch.nn.Linear,
    num_experts: int,
    top_k: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """The MLP for a few rows at a time."""
    mlp = by_rows(swiglu(gate_proj, up_proj, down_proj))
    return moe_layer(hidden_states, (gate_weight, gate_bias), mlp, num_experts, top_k, group)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, hidden, ffn, experts, top_k = world_size, size["hidden"], size["ffn"], size["experts"], size["top_k"]
    tokens = mean_tokens(size, w)
    rows = ranks_per_token(experts, top_k, w) * tokens
    return Cost.all_to_all(
        2 * destinations_per_token(experts, top_k, w) * tokens * hidden * element_bytes,
        w,
        phases=2,
        flops=2 * tokens * hidden * experts + 6 * rows * hidden * ffn,
        hbm_bytes=(2 * tokens * hidden + experts * hidden + 3 * hidden * ffn) * element_bytes,
        note="an average rank; a token is sent, computed and returned once for all its experts on one rank; counts ride with "
        "the rows, where the reference sends them first",
    )


def requires(size: Size, world_size: int) -> str | None:
    return why_not_equal(size["experts"], "experts", world_size)


PROBLEM = Problem(
    id=31,
    name="fused_moe_fwd",
    source="VeOmni, expert-parallel MoE layer, after Megatron-LM",
    taxonomy=Taxonomy(
        parallelism=("ep",),
        layer="moe",
        stage=("training-forward",),
        pattern=("all-gather", "all-to-all-v"),
        system="RL post-training",
        fusable="router GEMM with softmax and top-k, permutation, three expert GEMMs, weighted sum",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published_layer,
    reference=solution,
    exact=exact,
    baseline=baseline,
    reference_faster_at=("paper", "decode", "real"),
    cost=cost,
    compare=NormGate(tau={torch.bfloat16: 2e-2, torch.float16: 2.5e-3}),  # seven roundings one after another
    version=3,  # real has all of its 8192 tokens a rank
    requires=requires,
)
