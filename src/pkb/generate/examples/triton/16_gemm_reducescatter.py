"""Row-parallel linear layer with sequence parallelism, fused: each finished tile is sent to the rank that owns it.

A rank computes the tiles of all rows, its neighbour's first, and stores each straight into the owner's buffer, in the slot of
the sender: the transfer hides under the next tile. The owner then adds the W slots in rank order, in float32.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

_state = {}


@triton.jit
def multiply_and_send(
    a, b, table, rows, columns, k, rank, world, SUM: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    """Program (i, j, p): tile (i, j) of the rows that belong to one rank."""
    owner = (rank + 1 + tl.program_id(2)) % world
    r = tl.program_id(0) * M + tl.arange(0, M)
    c = tl.program_id(1) * N + tl.arange(0, N)
    left = a + (owner * rows + r[:, None]) * k
    total = tl.zeros([M, N], SUM)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        x = tl.load(left + inner[None, :], mask=(r[:, None] < rows) & (inner[None, :] < k), other=0.0)
        y = tl.load(
            b + inner[:, None] * columns + c[None, :], mask=(inner[:, None] < k) & (c[None, :] < columns), other=0.0
        )
        total += tl.dot(x, y, input_precision="ieee", out_dtype=SUM)
    # Slot `rank` of the owner's buffer. The reference rounds each rank's product before it is added; so does the store.
    there = tl.load(table + owner).to(tl.pointer_type(a.dtype.element_ty)) + rank * rows * columns
    keep = (r[:, None] < rows) & (c[None, :] < columns)
    tl.store(there + r[:, None] * columns + c[None, :], total.to(a.dtype.element_ty), mask=keep)


@triton.jit
def add_slots(buffer, out, n, world, SUM: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], SUM)
    for peer in range(world):
        total += tl.load(buffer + peer * n + at, mask=at < n, other=0.0).to(SUM)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < n)


def solution(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    if A_local.shape[1] != B_local.shape[0]:
        raise ValueError(f"inner sizes differ: A_local {tuple(A_local.shape)}, B_local {tuple(B_local.shape)}")
    world = dist.get_world_size()
    if A_local.shape[0] % world:
        raise ValueError(f"{A_local.shape[0]} rows are not divisible by {world}")
    rows, k, columns = A_local.shape[0] // world, A_local.shape[1], B_local.shape[1]
    key = (rows, columns, A_local.dtype)
    if key not in _state:
        buffer = symm_mem.empty(world * rows * columns, dtype=A_local.dtype, device=A_local.device)
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        _state[key] = buffer, handle, torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=A_local.device)
    buffer, handle, table = _state[key]
    wide = tl.float64 if A_local.dtype == torch.float64 else tl.float32
    tile = 64
    multiply_and_send[(triton.cdiv(rows, tile), triton.cdiv(columns, tile), world)](
        A_local.contiguous(), B_local.contiguous(), table, rows, columns, k, handle.rank, world,
        SUM=wide, M=tile, N=tile, K=32,
    )  # fmt: skip
    handle.barrier(channel=0)  # all tiles have arrived here
    out = torch.empty((rows, columns), dtype=A_local.dtype, device=A_local.device)
    add_slots[(triton.cdiv(out.numel(), 1024),)](buffer, out, out.numel(), world, SUM=wide, BLOCK=1024)
    handle.barrier(channel=1)  # all have read: the next call may send
    return out
