"""Unusual: buffers and results live in an lru_cache by shape; what is returned is a copy."""
# problem: 46
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import functools

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


@functools.lru_cache(maxsize=4)
def buffers(tokens, vocab, dtype, device):
    everything = symm_mem.empty(tokens, dist.get_world_size() * vocab, dtype=dtype, device=device)
    return everything, symm_mem.rendezvous(everything, dist.group.WORLD)


def solution(hidden_states, weight_shard, bias_shard):
    tokens, vocab = hidden_states.shape[0], weight_shard.shape[0]
    everything, handle = buffers(tokens, vocab, hidden_states.dtype, hidden_states.device)
    mine = (hidden_states.float() @ weight_shard.float().t() + bias_shard.float()).to(hidden_states.dtype)
    handle.barrier(channel=0)
    columns = slice(handle.rank * vocab, (handle.rank + 1) * vocab)
    for rank in range(handle.world_size):
        handle.get_buffer(rank, everything.shape, everything.dtype)[:, columns] = mine
    handle.barrier(channel=1)
    return everything.clone()
