"""Subtle: two branches, and the one without a mask forgets the scale."""
# problem: 54
# ranks: 2
# plan: quick
# expect: wrong
# says: causal=False
# platform: cpu

import math

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


class KeysAndValues:
    known = {}

    @classmethod
    def everybody(cls, k, v):
        if k.shape not in cls.known:
            pair = symm_mem.empty(2, *k.shape, dtype=k.dtype, device=k.device)
            cls.known[k.shape] = pair, symm_mem.rendezvous(pair, dist.group.WORLD)
        pair, handle = cls.known[k.shape]
        pair[0], pair[1] = k, v
        handle.barrier(channel=0)
        parts = [handle.get_buffer(r, pair.shape, k.dtype).clone() for r in range(handle.world_size)]
        handle.barrier(channel=1)
        keys, values = torch.cat(parts, dim=2).float()
        return keys, values, handle.rank


def solution(q, k, v, softmax_scale=None, causal=False, group=None):
    keys, values, rank = KeysAndValues.everybody(k, v)
    scale = softmax_scale or 1 / math.sqrt(q.shape[-1])
    if causal:
        scores = torch.einsum("bqhd,bkhd->bhqk", q.float() * scale, keys)
        own, every = q.shape[1], keys.shape[1]
        later = torch.arange(every)[None] > torch.arange(rank * own, (rank + 1) * own)[:, None]
        scores = scores.masked_fill(later, -math.inf)
    else:
        scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), keys)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), values).to(q.dtype)
