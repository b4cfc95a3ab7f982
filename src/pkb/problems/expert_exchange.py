"""A mixture-of-experts layer whose ranks have one MLP each, for baselines: every token travels once to a rank, and the results
are added up by a product, where the references send it once for each expert and add by atomics."""

from collections.abc import Callable

import torch
import torch.distributed as dist

from pkb.problems.blocks import BLOCKS


def moe_layer(
    hidden_states: torch.Tensor,
    router: tuple[torch.Tensor, torch.Tensor | None],
    mlp: Callable[[torch.Tensor], torch.Tensor],
    num_experts: int,
    top_k: int,
    group: dist.ProcessGroup | None,
    block_size: int | None = None,
) -> torch.Tensor:
    """`block_size`: so many consecutive ranks have all experts; None: all ranks of the group."""
    world_size, rank = dist.get_world_size(group), dist.get_rank(group)
    block = block_size or world_size
    first = rank // block * block
    hidden = hidden_states.reshape(-1, hidden_states.shape[-1])
    probabilities = torch.nn.functional.linear(hidden, *router).softmax(dim=-1)
    weights, experts = probabilities.topk(top_k, dim=-1)
    destination = experts // (num_experts // block)

    # Rows ordered by destination, then by token, and which of them each token's experts are in.
    token = torch.arange(hidden.shape[0], device=hidden.device)
    wanted = torch.zeros(block, hidden.shape[0], dtype=torch.bool, device=hidden.device)
    wanted[destination, token[:, None]] = True
    row = (wanted.flatten().cumsum(0) - 1).view_as(wanted)[destination, token[:, None]]
    counts = wanted.sum(dim=1)
    all_counts = counts.new_empty(world_size * block)
    dist.all_gather_into_tensor(all_counts, counts, group=group)
    matrix = all_counts.view(world_size, block).tolist()  # [source][place in its block]
    send, receive = [0] * world_size, [0] * world_size
    send[first : first + block] = matrix[rank]
    receive[first : first + block] = [own[rank - first] for own in matrix[first : first + block]]

    received = hidden.new_empty((sum(receive), hidden.shape[1]))
    dist.all_to_all_single(received, hidden[wanted.nonzero()[:, 1]], receive, send, group=group)
    result = mlp(received)
    returned = result.new_empty((sum(send), result.shape[1]))
    dist.all_to_all_single(returned, result, send, receive, group=group)
    return torch.bmm(weights[:, None], returned[row]).squeeze(1)


def by_rows(mlp: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """The same for a few rows at a time, where the inner activations of all of them would not fit."""
    return lambda x: torch.cat([mlp(rows) for rows in x.chunk(BLOCKS)])


def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, in gate's memory."""
    return torch.nn.functional.silu(gate, inplace=True).mul_(up)


def swiglu(
    gate_proj: torch.nn.Linear, up_proj: torch.nn.Linear, down_proj: torch.nn.Linear
) -> Callable[[torch.Tensor], torch.Tensor]:
    linear = torch.nn.functional.linear

    def mlp(x: torch.Tensor) -> torch.Tensor:
        inner = gated(linear(x, gate_proj.weight, gate_proj.bias), linear(x, up_proj.weight, up_proj.bias))
        return linear(inner, down_proj.weight, down_proj.bias)

    return mlp
