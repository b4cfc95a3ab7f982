"""29: rows of a token are looked up, weighted and added in one pass by torch.compile: they are never put in order."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.compiled import compiled


@compiled
def weighted_sums(returned: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    wide = torch.promote_types(returned.dtype, torch.float32)
    return (returned[rows].to(wide) * weights[..., None]).sum(dim=1).to(returned.dtype)


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
    return weighted_sums(returned, rows, weights).view(org_hidden_states_shape)


PROBLEM = replace(get(29), id=2902, name="one_pass", baseline=alternative)
