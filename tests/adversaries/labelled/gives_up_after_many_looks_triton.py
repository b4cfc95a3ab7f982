"""Subtle: a Triton kernel looks a hundred thousand times for each peer's flag and then goes on, which on a GPU is a tenth of a second.
Triton's interpreter looks in Python, some thousand times in the third of a second by which a rank is late at most, so nothing shows
it there; a GPU is fast enough.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: race
# stage: races
# xfail: an interpreter looks too seldom
# platform: cpu
# also: gpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

_buffers = {}


@triton.jit
def meet(table, rank, epoch, world: tl.constexpr):
    for peer in tl.static_range(world):
        theirs = tl.load(table + peer).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(theirs + rank, epoch, sem="release", scope="sys")
    mine = tl.load(table + rank).to(tl.pointer_type(tl.int32))
    for peer in tl.static_range(world):
        tries = 0
        seen = tl.atomic_add(mine + peer, 0, sem="acquire", scope="sys")
        while (seen < epoch) & (tries < 100000):
            seen = tl.atomic_add(mine + peer, 0, sem="acquire", scope="sys")
            tries += 1


@triton.jit
def add_all(table, out, n, world: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for peer in tl.static_range(world):
        data = tl.load(table + peer).to(tl.pointer_type(tl.bfloat16))
        total += tl.load(data + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(tl.bfloat16), mask=at < n)


def solution(tensor):
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        flags = symm_mem.empty(64, dtype=torch.int32, device=tensor.device)
        flags.zero_()
        handles = symm_mem.rendezvous(buffer, dist.group.WORLD), symm_mem.rendezvous(flags, dist.group.WORLD)
        handles[1].barrier(channel=0)
        tables = [torch.tensor(one.buffer_ptrs, dtype=torch.int64, device=tensor.device) for one in handles]
        _buffers[key] = buffer, flags, handles[0], tables, [0]
    buffer, _, handle, (data, signals), epoch = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    epoch[0] += 1
    meet[(1,)](signals, handle.rank, epoch[0], handle.world_size)
    out = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    add_all[(triton.cdiv(tensor.numel(), 2048),)](data, out, tensor.numel(), handle.world_size, 2048)
    handle.barrier(channel=1)
    return out
