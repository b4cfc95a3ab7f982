"""29: rows in the order of tokens, an elementwise product with their weights, and a sum over the rows of a token."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get


def alternative(
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
    world_size, (tokens, top_k) = dist.get_world_size(group), selected_experts.shape
    local_experts, hidden = num_experts // world_size, expert_outputs.shape[1]
    send, receive = [int(rows) for rows in output_splits], [int(rows) for rows in input_splits]
    pieces = expert_outputs.split(num_global_tokens_per_local_expert.t().reshape(-1).tolist())
    order = [expert * world_size + source for source in range(world_size) for expert in range(local_experts)]
    returned = expert_outputs.new_empty((sum(receive), hidden))
    dist.all_to_all_single(returned, torch.cat([pieces[index] for index in order]), receive, send, group=group)
    rows = local_input_permutation_mapping.argsort(stable=True).view(tokens, top_k)
    weights = routing_weights.gather(1, selected_experts.argsort(dim=1))
    return (returned[rows] * weights[..., None]).sum(dim=1).view(org_hidden_states_shape)


PROBLEM = replace(get(29), id=2901, name="product_then_sum", baseline=alternative)
