"""torch's own kernels read the peers' tensors."""
# expect: sm_load_store

import torch
import torch.distributed._symmetric_memory as symm_mem


def peers_of(handle, x):
    return [handle.get_buffer(r, x.shape, x.dtype) for r in range(handle.world_size)]


def solution(x, group):
    handle = symm_mem.rendezvous(x, group)
    total = torch.zeros_like(x)
    for peer in peers_of(handle, x):
        total.add_(peer)  # <- sm_load_store
    everything = torch.stack(peers_of(handle, x))  # <- sm_load_store
    return total + everything.sum(0)
