"""Trap: of the peers' tensors only sizes are asked."""
# expect: none

import torch.distributed._symmetric_memory as symm_mem


def solution(x, group):
    handle = symm_mem.rendezvous(x, group)
    peer = handle.get_buffer(1, x.shape, x.dtype)
    assert peer.numel() == x.numel() and peer.dtype == x.dtype
    return x * peer.dim()
