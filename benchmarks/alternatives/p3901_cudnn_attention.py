"""39: the baseline with cuDNN's attention instead of flash attention."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.fused_attention import cudnn_attend


def alternative(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    num_heads: int = 8,
    causal: bool = False,
) -> torch.Tensor:
    world_size = dist.get_world_size(group)
    batch, positions, _ = hidden_states.shape
    head_size, heads = w_qkv.shape[0] // (3 * num_heads), num_heads // world_size
    qkv = torch.matmul(hidden_states, w_qkv.t()).view(batch, positions, 3, world_size, heads, head_size)
    send = qkv.permute(3, 1, 0, 2, 4, 5).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    query, key, value = received.flatten(0, 1).permute(2, 1, 3, 0, 4)
    send = cudnn_attend(query, key, value, causal=causal, scale=None).permute(2, 0, 1, 3).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    own = received.view(world_size, positions, batch, -1).permute(2, 1, 0, 3).reshape(batch, positions, -1)
    return torch.matmul(own, w_o.t())


PROBLEM = replace(get(39), id=3901, name="cudnn_attention", baseline=alternative)
