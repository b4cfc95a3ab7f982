"""Honest Triton with inline assembly for its flags: counters in a symmetric buffer, released and acquired at
system scope.
"""
# problem: 1
# ranks: 4
# plan: quick
# expect: correct
# communication: custom
# platform: gpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

_state = {}


@triton.jit
def store_release(address, value):
    tl.inline_asm_elementwise(
        "st.release.sys.global.u32 [$1], $2; mov.u32 $0, 0;",
        "=r,l,r",
        [address, value],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def load_acquire(address):
    return tl.inline_asm_elementwise(
        "ld.acquire.sys.global.u32 $0, [$1];", "=r,l", [address], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def all_reduce(table, flag_table, out, n, epoch, rank: tl.constexpr, world: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    tl.debug_barrier()
    for peer in tl.static_range(world):
        flags = tl.load(flag_table + peer).to(tl.pointer_type(tl.int32))
        store_release(flags + pid * world + rank, epoch)
    for peer in tl.static_range(world):
        mine = tl.load(flag_table + rank).to(tl.pointer_type(tl.int32)) + pid * world + peer
        while load_acquire(mine) < epoch:
            pass
    tl.debug_barrier()
    at = pid * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for peer in tl.static_range(world):
        data = tl.load(table + peer).to(tl.pointer_type(tl.bfloat16))
        total += tl.load(data + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(tl.bfloat16), mask=at < n)


def solution(tensor):
    count, block = tensor.numel(), 4096
    if "flags" not in _state:
        flags = symm_mem.empty(1 << 16, dtype=torch.int32, device=tensor.device).zero_()
        handle = symm_mem.rendezvous(flags, dist.group.WORLD)
        handle.barrier(channel=0)
        _state["flags"] = flags, torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=tensor.device), [0]
    _, flag_table, epoch = _state["flags"]
    key = tuple(tensor.shape)
    if key not in _state:
        buffer = symm_mem.empty(count, dtype=tensor.dtype, device=tensor.device)
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        _state[key] = buffer, handle, torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=tensor.device)
    buffer, handle, table = _state[key]
    buffer.copy_(tensor.reshape(-1))
    epoch[0] += 1
    out = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    all_reduce[(triton.cdiv(count, block),)](
        table, flag_table, out, count, epoch[0], handle.rank, handle.world_size, block
    )
    handle.barrier(channel=1)
    return out
