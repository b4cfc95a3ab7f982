"""Honest: every rank publishes K and V once and each reads all of them."""
# problem: 54
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def solution(q, k, v, softmax_scale=None, causal=False, group=None):
    key = tuple(q.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(2, *q.shape, dtype=q.dtype, device=q.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    buffer.copy_(torch.stack([k, v]))
    handle.barrier(channel=0)
    blocks = [handle.get_buffer(peer, buffer.shape, q.dtype).float() for peer in range(handle.world_size)]
    handle.barrier(channel=1)
    keys, values = torch.cat(blocks, dim=2).transpose(2, 3)  # (B, heads, W * S, head size)
    scale = q.shape[3] ** -0.5 if softmax_scale is None else softmax_scale
    scores = q.float().transpose(1, 2) @ keys.transpose(-2, -1) * scale
    if causal:
        count = q.shape[1]
        rows = torch.arange(count).unsqueeze(1) + handle.rank * count
        scores = scores.masked_fill(torch.arange(scores.shape[-1]) > rows, float("-inf"))
    return (scores.softmax(-1) @ values).transpose(1, 2).to(q.dtype).contiguous()
