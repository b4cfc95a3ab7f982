"""Subtle: rounds to bf16 after every one of the 1024 products of a row instead of once. Of 32 products, as at `tiny`, the tolerance
allows it: there the error is smaller than that of sums that a library rounds between ranks.
"""
# problem: 46
# ranks: 2
# size: paper
# plan: quick
# expect: wrong
# beyond: size=tiny, where 32 products are added up
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

slots = {}


def product(x, weight):
    total = torch.zeros(x.shape[0], weight.shape[0], dtype=x.dtype)
    for column in range(x.shape[1]):
        total += x[:, column, None] * weight[None, :, column]
    return total


def solution(hidden_states, weight_shard, bias_shard):
    mine = product(hidden_states, weight_shard) + bias_shard
    if mine.shape not in slots:
        slot = symm_mem.empty(*mine.shape, dtype=mine.dtype, device=mine.device)
        slots[mine.shape] = slot, symm_mem.rendezvous(slot, dist.group.WORLD)
    slot, handle = slots[mine.shape]
    slot.copy_(mine)
    handle.barrier(channel=0)
    logits = torch.cat([handle.get_buffer(r, mine.shape, mine.dtype) for r in range(handle.world_size)], dim=1)
    handle.barrier(channel=1)
    return logits
