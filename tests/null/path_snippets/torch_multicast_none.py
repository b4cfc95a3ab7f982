"""Trap: it asks for the multicast address and does nothing with it."""
# expect: none

import torch.distributed._symmetric_memory as symm_mem


def solution(x, group):
    handle = symm_mem.rendezvous(x, group)
    if not handle.multicast_ptr:
        raise RuntimeError("needs NVLS")
    return x * 2
