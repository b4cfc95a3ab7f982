"""Unusual: a running softmax block by block; the result is a view into a larger tensor, heads first in memory and with a gap."""
# problem: 54
# ranks: 4
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import math

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

windows = {}


def solution(q, k, v, softmax_scale=None, causal=False, group=None):
    if q.shape not in windows:
        window = symm_mem.empty(2, *q.shape, dtype=q.dtype, device=q.device)
        windows[q.shape] = window, symm_mem.rendezvous(window, dist.group.WORLD)
    window, handle = windows[q.shape]
    window[0].copy_(k)
    window[1].copy_(v)
    handle.barrier(channel=0)
    batch, count, heads, width = q.shape
    query = q.float().permute(0, 2, 1, 3) * (width**-0.5 if softmax_scale is None else softmax_scale)
    peak = torch.full((batch, heads, count, 1), -math.inf)
    weight, found = torch.zeros(batch, heads, count, 1), torch.zeros(batch, heads, count, width)
    for step in range(handle.world_size):
        peer = (handle.rank - step) % handle.world_size
        if causal and peer > handle.rank:
            continue
        keys, values = handle.get_buffer(peer, window.shape, q.dtype).float().permute(0, 1, 3, 2, 4)
        scores = query @ keys.mT
        if causal and not step:
            scores += torch.full((count, count), -math.inf).triu(1)
        higher = torch.maximum(peak, scores.amax(-1, keepdim=True))
        share, shrink = (scores - higher).exp(), (peak - higher).exp()
        weight, found, peak = weight * shrink + share.sum(-1, keepdim=True), found * shrink + share @ values, higher
    handle.barrier(channel=1)
    roomy = torch.full((batch, heads, count + 3, width + 5), math.nan, dtype=q.dtype)
    view = roomy[:, :, 2:-1, 1:-4]
    view.copy_(found / weight)
    return view.transpose(1, 2)
