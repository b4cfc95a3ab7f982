"""Honest: Triton with the table of peer pointers; in the interpreter here, on a GPU as it stands."""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

_buffers = {}


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
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        table = torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=tensor.device)
        _buffers[key] = buffer, handle, table
    buffer, handle, table = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    out = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    block = 2048
    add_all[(triton.cdiv(tensor.numel(), block),)](table, out, tensor.numel(), handle.world_size, block)
    handle.barrier(channel=1)
    return out
