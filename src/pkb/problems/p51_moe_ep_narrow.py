"""Mixture-of-experts layer with fewer experts than ranks: blocks of ranks hold all experts and exchange tokens inside.

VeOmni's expert-parallel layer, replicated over data-parallel blocks. There are E = W / 2 experts, and ranks [i * E, (i
+ 1) * E) are block i, its rank i * E + x holding expert x: one SwiGLU MLP (three linear layers with bias), the same in
every block. Each rank holds its tokens (T, H) and the router (gate_weight, gate_bias or None), equal everywhere. The
router's softmax over the experts, rounded to the dtype, gives each token its top_k experts and their weights, which are
not normalised again: out[t] = sum over the chosen experts x of weight[t, x] * MLP of expert x (hidden[t]), always as
(T, H). Every intermediate result is rounded to the dtype. Tokens never leave their block. A given `group` is the block
itself (with E / size experts a rank, all one MLP); without a group, blocks of E consecutive ranks are formed as above.

With four ranks a block is a pair and every token goes to both (top_k = E); eight ranks have a choice of two in four. A
good kernel writes rows to places it reserves on the peer, which is block * E + x of the world and not x, starts the
matrix products when a tile of rows is there, and sends results back tile by tile.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.expert_exchange import moe_layer, swiglu
from pkb.problems.moe_routing import draw_moe_layer, mean_tokens, published_layer
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # tokens of rank 0; each next rank has `fewer` less. With `batch`, hidden states are (batch, T / batch, H)
    "tiny": {"tokens": 24, "hidden": 32, "ffn": 24, "batch": 2},
    "paper": {"tokens": 1024, "hidden": 1024, "ffn": 128},
    # The layers of Mixtral-8x7B, with four experts in each of two blocks
    "real": {"tokens": 4096, "hidden": 4096, "ffn": 14336},
    "odd": {"tokens": 43, "hidden": 67, "ffn": 29, "fewer": 5},
}
TOP_K = 2


def experts_of(world_size: int) -> int:
    """The largest number of experts, at least two, that makes two or more equal blocks; one if there is none."""
    return next((e for e in range(world_size // 2, 1, -1) if world_size % e == 0), 1)


def inputs(draw: Draw) -> Arguments:
    experts = experts_of(draw.world_size)
    top_k = min(TOP_K, experts)
    owner = ("expert", draw.rank % experts)  # blocks hold copies of the same experts
    return {
        **draw_moe_layer(draw, experts=experts, top_k=top_k, owner=owner),
        "num_experts": experts,  # follows from the ranks; top_k belongs to the model
        "top_k": top_k,
        "group": None,
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
    # This rank's block of ranks: the whole group, or, without a group, as many consecutive ranks as there are experts.
    block_size = num_experts if group is None and num_experts < world_size else world_size
    if num_experts % block_size or world_size % block_size or not 1 <= top_k <= num_experts:
        raise ValueError(f"the top {top_k} of {num_experts} experts on {world_size} ranks")
    first = rank // block_size * block_size
    local_experts = num_experts // block_size
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
    matrix = all_counts.view(world_size, block_size, local_experts).sum(dim=2).tolist()  # [source][place in its block]
    send, receive = [0] * world_size, [0] * world_size  # no rows to or from other blocks
    send[first : first + block_size] = matrix[rank]
    receive[first : first + block_size] = [row[rank - first] for row in matrix[first : first + block_size]]

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
    world_size = dist.get_world_size(group)
    block = num_experts if group is None and num_experts < world_size else world_size
    mlp = swiglu(gate_proj, up_proj, down_proj)
    return moe_layer(hidden_states, (gate_weight, gate_bias), mlp, num_experts, top_k, group, block)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, hidden, ffn, experts = world_size, size["hidden"], size["ffn"], experts_of(world_size)
    tokens = mean_tokens(size, w)
    rows = min(TOP_K, experts) * tokens  # a token's experts are on different ranks
    # More than expected may stay at home when a rank's own expert is popular.
    moved = 0.9 * 2 * rows * hidden * element_bytes
    return Cost.all_to_all(
        moved,
        experts,
        phases=2,
        flops=2 * tokens * hidden * experts + 6 * rows * hidden * ffn,
        hbm_bytes=(2 * tokens * hidden + experts * hidden + 3 * hidden * ffn) * element_bytes,
        note="an average rank; counts ride with the rows, where the reference sends them first",
    )


PROBLEM = Problem(
    id=51,
    name="moe_ep_narrow",
    source="VeOmni, expert-parallel MoE layer replicated over data-parallel blocks",
    taxonomy=Taxonomy(
        parallelism=("ep", "dp"),
        layer="moe",
        stage=("training-forward",),
        pattern=("all-gather", "all-to-all-v"),
        system="RL post-training",
        fusable="router GEMM with softmax and top-k, permutation, three expert GEMMs, weighted sum",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published_layer,
    fixed={
        "top_k": "of the model, Mixtral's",
        "num_experts": "what makes the problem: as many as two ranks have",
        "group": "the whole world, as upstream's",
    },
    reference=solution,
    baseline=baseline,
    cost=cost,
    compare=NormGate(tau={torch.bfloat16: 2e-2, torch.float16: 2.5e-3}),  # seven roundings one after another
    version=2,  # tolerance
    world_sizes=(4, 8),  # two or three ranks give one expert each, and nothing to exchange
)
