"""All-to-all by pulling: publish the whole tensor once, then fetch piece `rank` of every peer straight into its place."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

_state = {}


@triton.jit
def pull(table, out, piece, rank, world, BLOCK: tl.constexpr):
    """Program (i, k) fetches block i of one peer's piece; each rank begins with its neighbour, so no link is crowded."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    peer = (rank + 1 + tl.program_id(1)) % world
    there = tl.load(table + peer).to(tl.pointer_type(out.dtype.element_ty)) + rank * piece
    tl.store(out + peer * piece + at, tl.load(there + at, mask=at < piece), mask=at < piece)


def solution(tensor: torch.Tensor) -> torch.Tensor:
    key = (tensor.numel(), tensor.dtype)
    if key not in _state:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        _state[key] = buffer, handle, torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=tensor.device)
    buffer, handle, table = _state[key]
    world = handle.world_size
    if tensor.shape[0] % world:
        raise ValueError(f"axis 0 of {tuple(tensor.shape)} is not divisible by {world}")
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)  # all have published
    out = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    piece = tensor.numel() // world
    block = 2048
    pull[(triton.cdiv(piece, block), world)](table, out, piece, handle.rank, world, BLOCK=block)
    handle.barrier(channel=1)  # all have read: the next call may overwrite the buffer
    return out
