"""Trap: the kernel takes its own rank's entry of the table only; data moves by the copy engine."""
# expect: copy_engine

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl


@triton.jit
def fill(table, rank, x, B: tl.constexpr):
    own = tl.load(table + rank).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, B)
    tl.store(own + at, tl.load(x + at))


def solution(x, buf):
    handle = symm_mem.rendezvous(buf, dist.group.WORLD)
    fill[(1,)](handle.buffer_ptrs_dev, handle.rank, x, B=256)
    out = torch.empty_like(x)
    out.copy_(handle.get_buffer(0, x.shape, x.dtype))  # <- copy_engine
    return out
