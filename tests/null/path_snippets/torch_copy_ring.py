"""Ring all-gather with the copy engine; the peers are kept in a class and handed on as parameters."""
# expect: copy_engine sm_load_store

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


class Ring:
    def __init__(self, x):
        self.buffer = symm_mem.empty(x.shape, dtype=x.dtype, device=x.device)
        self.handle = symm_mem.rendezvous(self.buffer, dist.group.WORLD)
        self.peers = [self.handle.get_buffer(r, x.shape, x.dtype) for r in range(self.handle.world_size)]


_rings = {}


def pull(target, source):
    target.copy_(source)  # <- copy_engine


def solution(x):
    ring = _rings.setdefault(x.shape, Ring(x))
    ring.buffer.copy_(x)
    ring.handle.barrier()  # <- sm_load_store
    out = torch.empty((len(ring.peers), *x.shape), dtype=x.dtype, device=x.device)
    for i, peer in enumerate(ring.peers):
        pull(out[i], peer)
    ring.handle.barrier()  # <- sm_load_store
    return out
