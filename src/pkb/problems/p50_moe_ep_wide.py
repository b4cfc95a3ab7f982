"""Mixture-of-experts layer with two experts on every rank that share one MLP: route, dispatch, apply, combine.

VeOmni's expert-parallel layer with E = 2 W experts. Rank r holds its tokens (T, H), the router (gate_weight, gate_bias
or None), equal on all ranks, and one SwiGLU MLP (three linear layers with bias). The router's softmax over the E
experts, rounded to the dtype, gives each token its top_k experts and their weights, which are not normalised again.
Expert x is on rank x // L, with L = E / W = 2, and all experts of a rank are its one MLP: out[t] = sum over the chosen
experts x of weight[t, x] * MLP of rank x // L (hidden[t]). Every rank returns the result for its own tokens, always as
(T, H). Every intermediate result is rounded to the dtype. Ranks may have different numbers of tokens.

As experts of a rank share their weights, one matrix product over all received rows serves, in any order of rows, and a
token with both experts on one rank can be sent and computed once, with the sum of its two weights. The reference sends
it twice. How many rows arrive is known only when all have routed: a good kernel writes rows to places it reserves on
the peer (room for the worst case), and starts the matrix products when a tile of rows is there.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.expert_exchange import moe_layer, swiglu
from pkb.problems.moe_routing import (
    destinations_per_token,
    draw_moe_layer,
    mean_tokens,
    published_layer,
    ranks_per_token,
)
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # tokens of rank 0; each next rank has `fewer` less. With `batch`, hidden states are (batch, T / batch, H)
    "tiny": {"tokens": 24, "hidden": 32, "ffn": 24, "batch": 2},
    "paper": {"tokens": 1024, "hidden": 1024, "ffn": 128},
    # Phi-3.5-MoE, EP 8, two of its experts being one
    "real": {"tokens": 4096, "hidden": 4096, "ffn": 6400},
    "odd": {"tokens": 43, "hidden": 67, "ffn": 29, "fewer": 5},
}
TOP_K = 2


def experts_of(world_size: int) -> int:
    return 2 * world_size


def inputs(draw: Draw) -> Arguments:
    experts = experts_of(draw.world_size)
    top_k = min(TOP_K, experts)
    return {
        **draw_moe_layer(draw, experts=experts, top_k=top_k),
        "num_experts": experts,  # follows from the ranks; top_k belongs to the model
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
    if num_experts % world_size or not 1 <= top_k <= num_experts:
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


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, hidden, ffn, experts = world_size, size["hidden"], size["ffn"], experts_of(world_size)
    tokens = mean_tokens(size, w)
    rows = ranks_per_token(experts, TOP_K, w) * tokens
    return Cost.all_to_all(
        2 * destinations_per_token(experts, TOP_K, w) * tokens * hidden * element_bytes,
        w,
        phases=2,
        flops=2 * tokens * hidden * experts + 6 * rows * hidden * ffn,
        hbm_bytes=(2 * tokens * hidden + experts * hidden + 3 * hidden * ffn) * element_bytes,
        note="an average rank; a token is sent, computed and returned once for both its experts on one rank; counts ride "
        "with the rows, where the reference sends them first",
    )


PROBLEM = Problem(
    id=50,
    name="moe_ep_wide",
    source="VeOmni, expert-parallel MoE layer with several experts a rank",
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
    fixed={"top_k": "of the model, Mixtral's"},
    reference=solution,
    baseline=baseline,
    reference_faster_at=("paper",),
    cost=cost,
    compare=NormGate(tau={torch.bfloat16: 2e-2, torch.float16: 2.5e-3}),  # seven roundings one after another
    version=2,  # tolerance
)
