"""All-gather by pushing: every rank stores its shard into its place of every rank's buffer, so no load waits for an answer.

Two buffers are used in turn, so one barrier a call is enough: a rank that sends data of call n+2 has passed the barrier of call
n+1, which no peer reaches before it has copied the result of call n out.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

_state = {}


@triton.jit
def push(table, source, n, place, BLOCK: tl.constexpr):
    """Program (i, peer) sends block i of the shard to a peer."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = tl.load(table + tl.program_id(1)).to(tl.pointer_type(source.dtype.element_ty)) + place
    tl.store(there + at, tl.load(source + at, mask=at < n), mask=at < n)


def _prepare(tensor: torch.Tensor) -> list:
    """Two symmetric halves in one allocation; collective, so once for each shape."""
    key = (tuple(tensor.shape), tensor.dtype)
    if key not in _state:
        world = dist.get_world_size()
        buffer = symm_mem.empty(2, world, *tensor.shape, dtype=tensor.dtype, device=tensor.device)
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        table = torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=tensor.device)
        _state[key] = [buffer, handle, table, 0]
    return _state[key]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    state = _prepare(tensor)
    buffer, handle, table, half = state
    state[3] = 1 - half
    n = tensor.numel()
    block = 2048
    place = (half * handle.world_size + handle.rank) * n
    push[(triton.cdiv(n, block), handle.world_size)](table, tensor.contiguous(), n, place, BLOCK=block)
    handle.barrier(channel=0)  # all shards have arrived here
    return buffer[half].clone()  # a result of its own: the buffer is written again two calls later
