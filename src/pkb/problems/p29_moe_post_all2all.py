"""Brings the experts' results back to the ranks of their tokens and adds them up with the router's weights.

The combine step of VeOmni's and xorl's expert parallelism, the inverse of `moe_pre_all2all`. Rank r holds the results of
its L = E / W experts, in the order local expert, source rank, token: num_global_tokens_per_local_expert[s, l] rows for
source s and local expert l. They are put into the order source, local expert, and the all-to-all returns
`output_splits[s]` of them to rank s; `input_splits[d]` come back from rank d. (The names are those of the way out, so
here the output splits are sent and the input splits received.) The returned rows are in the order expert, token;
row i belongs to token local_input_permutation_mapping[i], and is multiplied by the weight that the token gives to the
row's expert, rounded, and added to the token's sum. The result has the shape and place of the hidden states before the
dispatch.

`routing_map` (E, T) says which token went to which expert; `selected_experts` and `routing_weights` (T, K) list them per
token in no particular order. A good kernel writes each row, already weighted, to the rank of its token, or lets that rank
read and add the K rows of a token in registers; a rank with several experts of one token can add them before they
travel. Sums in float32 are welcome.
"""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.draw import Arguments, Draw
from pkb.problems.moe_routing import chosen_experts, destinations_per_token
from pkb.problems.sharding import why_not_equal
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # with `batch`, the result is (batch, T / batch, H)
    "tiny": {"tokens": 24, "hidden": 16, "experts": 8, "top_k": 2, "batch": 2},
    "paper": {"tokens": 1024, "hidden": 1024, "experts": 8, "top_k": 2},
    "real": {"tokens": 4096, "hidden": 7168, "experts": 256, "top_k": 8},  # DeepSeek-V3, EP 8
    "odd": {"tokens": 53, "hidden": 37, "experts": 24, "top_k": 3},
    "decode": {"tokens": 128, "hidden": 7168, "experts": 256, "top_k": 8},  # 128 sequences a rank
}


def inputs(draw: Draw) -> Arguments:
    w, rank = draw.world_size, draw.rank
    tokens, hidden, experts, top_k = (draw.size[name] for name in ("tokens", "hidden", "experts", "top_k"))
    chosen = [chosen_experts(draw, source) for source in range(w)]
    counts = torch.stack([torch.bincount(own.flatten(), minlength=experts) for own in chosen]).view(w, w, experts // w)
    own_map = torch.zeros((experts, tokens), dtype=torch.bool).scatter_(0, chosen[rank].t(), True)
    leading = (draw.size["batch"], tokens // draw.size["batch"]) if "batch" in draw.size else (tokens,)
    scores = draw.normal("routing_weights", (tokens, top_k), dtype=torch.float32)
    return {
        "expert_outputs": draw.normal("expert_outputs", (int(counts[:, rank].sum()), hidden)),
        "routing_weights": scores.softmax(dim=1).to(draw.dtype),
        "selected_experts": chosen[rank].to(draw.device),
        "num_experts": experts,
        "input_splits": counts[rank].sum(dim=1).tolist(),
        "output_splits": counts[:, rank].sum(dim=1).tolist(),
        "num_global_tokens_per_local_expert": counts[:, rank].contiguous().to(draw.device),
        "routing_map": own_map.to(draw.device),
        "local_input_permutation_mapping": own_map.nonzero()[:, 1].contiguous().to(draw.device),
        "org_hidden_states_shape": torch.Size((*leading, hidden)),
        "group": draw.group("world"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Different experts at random, in ascending order, and equal splits all the same: a row's expert may be another's."""
    tokens, experts, top_k = draw.size["tokens"], draw.size["experts"], draw.size["top_k"]
    on_host = replace(draw, device=torch.device("cpu"))  # also where only shapes are asked for
    scores = on_host.uniform("experts, published", (tokens, experts), 0.0, 1.0, dtype=torch.float32)
    chosen = scores.topk(top_k, dim=1).indices.sort(dim=1).values
    own_map = torch.zeros((experts, tokens), dtype=torch.bool).scatter_(0, chosen.t(), True)
    return {
        "selected_experts": chosen.to(draw.device),
        "routing_map": own_map.to(draw.device),
        "local_input_permutation_mapping": own_map.nonzero()[:, 1].contiguous().to(draw.device),
    }


def solution(
    expert_outputs: torch.Tensor,
    routing_weights: torch.Tensor,
    selected_experts: torch.Tensor,
    num_experts: int,
    input_splits: list[int] | torch.Tensor,
    output_splits: list[int] | torch.Tensor,
    num_global_tokens_per_local_expert: torch.Tensor,
    routing_map: torch.Tensor,
    local_input_permutation_mapping: torch.Tensor,
    org_hidden_states_shape: torch.Size,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    world_size = dist.get_world_size(group)
    if num_experts % world_size:
        raise ValueError(f"{num_experts} experts cannot be shared equally by {world_size} ranks")
    local_experts = num_experts // world_size
    send, receive = [int(rows) for rows in output_splits], [int(rows) for rows in input_splits]
    if sum(send) != expert_outputs.shape[0] or sum(receive) != local_input_permutation_mapping.numel():
        raise ValueError(
            f"splits {send} and {receive} do not fit {expert_outputs.shape[0]} rows of results "
            f"and {local_input_permutation_mapping.numel()} rows to come back"
        )

    # From (local expert, source) to (source, local expert).
    pieces = expert_outputs.split(num_global_tokens_per_local_expert.t().reshape(-1).tolist())
    order = [expert * world_size + source for source in range(world_size) for expert in range(local_experts)]
    by_source = torch.cat([pieces[index] for index in order])
    hidden = expert_outputs.shape[1]
    returned = torch.empty((sum(receive), hidden), dtype=expert_outputs.dtype, device=expert_outputs.device)
    dist.all_to_all_single(returned, by_source, receive, send, group=group)

    tokens = selected_experts.shape[0]
    weights = torch.zeros((tokens, num_experts), dtype=routing_weights.dtype, device=routing_weights.device)
    weights.scatter_add_(1, selected_experts, routing_weights)
    row_weights = weights.t()[routing_map.to(torch.bool)]  # by expert, then by token, as the rows
    weighted = returned * row_weights[:, None]
    per_token = selected_experts.shape[1]
    if weighted.shape[0] == tokens * per_token:  # every token has that many rows: gathered and added, without atomics
        rows = local_input_permutation_mapping.argsort(stable=True)
        return weighted[rows].view(tokens, per_token, hidden).sum(dim=1).view(org_hidden_states_shape)
    out = torch.zeros((tokens, hidden), dtype=weighted.dtype, device=weighted.device)
    out.index_add_(0, local_input_permutation_mapping, weighted)
    return out.view(org_hidden_states_shape)


def baseline(
    expert_outputs: torch.Tensor,
    routing_weights: torch.Tensor,
    selected_experts: torch.Tensor,
    num_experts: int,
    input_splits: list[int] | torch.Tensor,
    output_splits: list[int] | torch.Tensor,
    num_global_tokens_per_local_expert: torch.Tensor,
    routing_map: torch.Tensor,
    local_input_permutation_mapping: torch.Tensor,
    org_hidden_states_shape: torch.Size,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Rows are gathered in the order of tokens and added up by a product: no pass for the weights and none for the sum."""
    world_size, (tokens, top_k) = dist.get_world_size(group), selected_experts.shape
    if local_input_permutation_mapping.numel() != tokens * top_k:
        return solution(
            expert_outputs, routing_weights, selected_experts, num_experts, input_splits, output_splits,
            num_global_tokens_per_local_expert, routing_map, local_input_permutation_mapping, org_hidden_states_shape, group,
        )  # fmt: skip
    local_experts, hidden = num_experts // world_size, expert_outputs.shape[1]
    send, receive = [int(rows) for rows in output_splits], [int(rows) for rows in input_splits]
    pieces = expert_outputs.split(num_global_tokens_per_local_expert.t().reshape(-1).tolist())
    order = [expert * world_size + source for source in range(world_size) for expert in range(local_experts)]
    returned = expert_outputs.new_empty((sum(receive), hidden))
    dist.all_to_all_single(returned, torch.cat([pieces[index] for index in order]), receive, send, group=group)
    # A token's rows stand in the order of experts: its weights are brought into the same.
    rows = local_input_permutation_mapping.argsort(stable=True).view(tokens, top_k)
    weights = routing_weights.gather(1, selected_experts.argsort(dim=1))
    return torch.bmm(weights[:, None], returned[rows]).view(org_hidden_states_shape)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, tokens, experts, top_k = world_size, size["tokens"], size["experts"], size["top_k"]
    row = size["hidden"] * element_bytes
    destinations = destinations_per_token(experts, top_k, w)
    return Cost.all_to_all(
        destinations * tokens * row,
        w,
        flops=2 * top_k * tokens * size["hidden"],
        hbm_bytes=(1 + top_k) * tokens * row,
        note="an average rank; a rank adds what its experts have for one token before sending it",
    )


def requires(size: Size, world_size: int) -> str | None:
    return why_not_equal(size["experts"], "experts", world_size)


PROBLEM = Problem(
    id=29,
    name="moe_post_all2all",
    source="VeOmni and xorl, tokens_post_all2all",
    taxonomy=Taxonomy(
        parallelism=("ep",),
        layer="moe",
        stage=("training-forward",),
        pattern=("all-to-all-v",),
        system="RL post-training",
        fusable="chunk reordering before, weighted scatter-add after",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    reference_faster_at=("paper",),
    tried=(
        Alternative("an elementwise product and a sum over the rows of a token", us=15976),
        Alternative("rows looked up, weighted and added in one pass by torch.compile"),
    ),
    cost=cost,
    requires=requires,
)
