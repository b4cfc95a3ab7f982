"""One-shot all-reduce in a single launch, with the barriers inside the kernel.

Program p of a rank works on the same elements as the programs p of its peers, so it has to meet only those. Signals follow
torch's convention (0 to 1 by the sender, 1 to 0 by the receiver), so the pads are clean after every call.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

PROGRAMS = 16  # few enough to be resident at once, also where a rank has a share of a GPU
_state = {}


@triton.jit
def meet(pads, channel, rank: tl.constexpr, world: tl.constexpr):
    """The programs `channel` of all ranks meet: all signals out, then all in."""
    tl.debug_barrier()  # what all threads of this program did comes before the signals
    for peer in tl.static_range(world):
        slot = tl.load(pads + peer).to(tl.pointer_type(tl.int32)) + channel * world + rank
        while tl.atomic_cas(slot, 0, 1, sem="release", scope="sys") != 0:
            pass
    for peer in tl.static_range(world):
        slot = tl.load(pads + rank).to(tl.pointer_type(tl.int32)) + channel * world + peer
        while tl.atomic_cas(slot, 1, 0, sem="acquire", scope="sys") != 1:
            pass
    tl.debug_barrier()


@triton.jit
def all_reduce(
    table, pads, source, out, n, rank: tl.constexpr, world: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr
):
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    mine = tl.load(table + rank).to(tl.pointer_type(source.dtype.element_ty))
    for start in range(program * BLOCK, n, programs * BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(mine + at, tl.load(source + at, mask=at < n), mask=at < n)
    meet(pads, program, rank, world)  # all have published
    for start in range(program * BLOCK, n, programs * BLOCK):
        at = start + tl.arange(0, BLOCK)
        total = tl.zeros([BLOCK], SUM)
        for peer in tl.static_range(world):  # the same order everywhere: the same bits on all ranks
            data = tl.load(table + peer).to(tl.pointer_type(source.dtype.element_ty))
            total += tl.load(data + at, mask=at < n, other=0.0).to(SUM)
        tl.store(out + at, total.to(source.dtype.element_ty), mask=at < n)
    meet(pads, program, rank, world)  # all have read: the next call may overwrite


def solution(tensor: torch.Tensor) -> torch.Tensor:
    key = (tensor.numel(), tensor.dtype)
    if key not in _state:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        table = torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=tensor.device)
        pads = torch.tensor(handle.signal_pad_ptrs, dtype=torch.int64, device=tensor.device)
        _state[key] = buffer, handle, table, pads
    _, handle, table, pads = _state[key]
    out = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    wide = tl.float64 if tensor.dtype == torch.float64 else tl.float32
    all_reduce[(PROGRAMS,)](
        table, pads, tensor.contiguous(), out, tensor.numel(), handle.rank, handle.world_size, SUM=wide, BLOCK=1024
    )
    return out
