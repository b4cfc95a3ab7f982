"""Trap: multicast_ptr is only compared with zero; the data goes by loads."""
# expect: sm_load_store

import torch
import torch.distributed._symmetric_memory as symm_mem


def solution(x, group):
    handle = symm_mem.rendezvous(x, group)
    mc = handle.multicast_ptr
    if mc == 0 or not handle.multicast_ptr:
        print("no multicast here", mc)
    print(bool(handle.multicast_ptr))
    out = torch.zeros_like(x)
    for r in range(handle.world_size):
        out += handle.get_buffer(r, x.shape, x.dtype)  # <- sm_load_store
    return out
