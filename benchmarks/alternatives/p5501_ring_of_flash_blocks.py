"""55: a ring of flash attention blocks, merged by their log-sum-exp."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.fused_attention import ring_attend


def alternative(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    num_heads: int,
    softmax_scale: float | None = None,
    causal: bool = False,
    tp_group: dist.ProcessGroup | None = None,
    cp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    cp_group = dist.group.WORLD if cp_group is None else cp_group
    assert cp_group is not None
    tp = dist.get_world_size(tp_group)
    batch, positions, _ = hidden_states.shape
    qkv = torch.matmul(hidden_states, w_qkv.t()).view(batch, positions, 3, num_heads // tp, -1)
    query, key, value = qkv.permute(2, 0, 3, 1, 4)
    context = ring_attend(query, key, value, cp_group, causal=causal, scale=softmax_scale)
    out = torch.matmul(context.transpose(1, 2).reshape(batch, positions, -1), w_o.t())
    if tp > 1:
        dist.all_reduce(out, op=dist.ReduceOp.SUM, group=tp_group)
    return out


PROBLEM = replace(get(55), id=5501, name="ring_of_flash_blocks", baseline=alternative)
