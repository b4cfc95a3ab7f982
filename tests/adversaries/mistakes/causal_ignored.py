"""Attends to all keys in causal calls too. The case of the verdict says in which calls: those with causal=True."""
# problem: 54
# ranks: 2
# plan: quick
# expect: wrong
# says: causal=True
# platform: cpu

import torch
import torch.distributed as dist


def solution(q, k, v, softmax_scale=None, causal=False, group=None):
    gathered = [[torch.empty_like(part) for _ in range(dist.get_world_size())] for part in (k, v)]
    for parts, mine in zip(gathered, (k, v), strict=True):
        dist.all_gather(parts, mine.contiguous())
    keys, values = (torch.cat(parts, dim=1).float().transpose(1, 2) for parts in gathered)
    scale = q.shape[3] ** -0.5 if softmax_scale is None else softmax_scale
    scores = q.float().transpose(1, 2) @ keys.transpose(-2, -1) * scale
    return (scores.softmax(-1) @ values).transpose(1, 2).to(q.dtype).contiguous()
