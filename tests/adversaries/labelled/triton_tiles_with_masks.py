"""Unusual: Triton's interpreter reduces two-dimensional tiles that fit nothing, reading peers by pointers from a table."""
# problem: 7
# ranks: 3
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

known = {}


@triton.jit
def reduce_tile(table, out, first, rows, columns, WORLD: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr):
    row = tl.program_id(0) * TALL + tl.arange(0, TALL)[:, None]
    column = tl.program_id(1) * WIDE + tl.arange(0, WIDE)[None, :]
    inside = (row < rows) & (column < columns)
    total = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for peer in range(WORLD):
        base = tl.load(table + peer).to(tl.pointer_type(tl.bfloat16))
        total += tl.load(base + (first + row) * columns + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * columns + column, total.to(tl.bfloat16), mask=inside)


def solution(tensor):
    if tensor.shape not in known:
        window = symm_mem.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        handle = symm_mem.rendezvous(window, dist.group.WORLD)
        table = torch.tensor([int(pointer) for pointer in handle.buffer_ptrs], dtype=torch.int64, device=tensor.device)
        known[tensor.shape] = window, handle, table
    window, handle, table = known[tensor.shape]
    rows, columns = tensor.shape[0] // handle.world_size, tensor.shape[1]
    window.copy_(tensor)
    handle.barrier(channel=0)
    out = tensor.new_empty(rows, columns)
    grid = (triton.cdiv(rows, 16), triton.cdiv(columns, 32))
    reduce_tile[grid](table, out, handle.rank * rows, rows, columns, handle.world_size, 16, 32)
    handle.barrier(channel=1)
    return out
