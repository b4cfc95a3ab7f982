"""All-reduce in Triton through a table of addresses; the barrier is torch's."""
# expect: sm_load_store
# kernels: add_all=sm_load_store

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

_cache = {}


@triton.jit
def add_all(table, out, n, world: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for peer in tl.static_range(world):
        data = tl.load(table + peer).to(tl.pointer_type(tl.bfloat16))
        total += tl.load(data + at, mask=at < n, other=0.0).to(tl.float32)  # <- sm_load_store
    tl.store(out + at, total.to(tl.bfloat16), mask=at < n)


def solution(x):
    if x.shape not in _cache:
        buffer = symm_mem.empty(x.numel(), dtype=x.dtype, device=x.device)
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        table = torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=x.device)
        _cache[x.shape] = buffer, handle, table
    buffer, handle, table = _cache[x.shape]
    buffer.copy_(x.reshape(-1))
    handle.barrier(channel=0)  # <- sm_load_store
    out = torch.empty_like(x)
    add_all[(triton.cdiv(x.numel(), 1024),)](table, out, x.numel(), handle.world_size, 1024)
    handle.barrier(channel=1)  # <- sm_load_store
    return out
