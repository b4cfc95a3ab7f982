"""M13: Triton pushes this rank's shard into every peer's buffer, and the buffer itself is returned."""
# problem: 2
# ranks: 2
# plan: quick
# expect: reused_output
# stage: races
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

_buffers = {}


@triton.jit
def push(table, source, n, rank: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = tl.load(table + tl.program_id(1)).to(tl.pointer_type(tl.bfloat16)) + rank * n
    tl.store(there + at, tl.load(source + at, mask=at < n), mask=at < n)


def solution(tensor):
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(dist.get_world_size(), *tensor.shape, dtype=tensor.dtype, device=tensor.device)
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        table = torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=tensor.device)
        _buffers[key] = buffer, handle, table
    buffer, handle, table = _buffers[key]
    handle.barrier(channel=0)
    block = 1024
    push[(triton.cdiv(tensor.numel(), block), handle.world_size)](
        table, tensor.contiguous(), tensor.numel(), handle.rank, block
    )
    handle.barrier(channel=1)
    return buffer
