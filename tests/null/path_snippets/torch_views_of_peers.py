"""Peers reached through a dictionary, views and a tuple: still peers."""
# expect: copy_engine sm_load_store

import torch
import torch.distributed._symmetric_memory as symm_mem

STATE = {}


def setup(x, group):
    handle = symm_mem.rendezvous(x, group)
    table = {r: handle.get_buffer(r, x.shape, x.dtype) for r in range(handle.world_size)}
    return x, handle, table


def solution(x, group):
    if "s" not in STATE:
        STATE["s"] = setup(x, group)
    own, handle, table = STATE["s"]
    left = table[0].view(-1)[4:]
    out = torch.empty_like(x).view(-1)
    out[4:].copy_(left)  # <- copy_engine
    out[:4] = table[1].flatten()[:4]  # <- copy_engine
    return out * table[2].reshape(-1)  # <- sm_load_store
