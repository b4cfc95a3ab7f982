"""Triton kernels of the symmetric-memory tests; to be imported in a rank, after TRITON_INTERPRET=1 was set."""

from typing import Any

import triton
import triton.language as tl


@triton.jit
def meet(pads: Any, rank: tl.constexpr, world_size: tl.constexpr) -> None:
    """A barrier in the kernel's own hand: compare-and-swap on the peers' pads at system scope, as on a GPU."""
    table = pads.to(tl.pointer_type(tl.uint64))
    own = tl.load(table + rank).to(tl.pointer_type(tl.uint32))
    for peer in range(world_size):
        pad = tl.load(table + peer).to(tl.pointer_type(tl.uint32))
        while tl.atomic_cas(pad + rank, 0, 1, sem="release", scope="sys") != 0:
            pass
    for peer in range(world_size):
        while tl.atomic_cas(own + peer, 1, 0, sem="acquire", scope="sys") != 1:
            pass


@triton.jit
def all_reduce(
    buffers: Any, pads: Any, out: Any, count: Any, rank: tl.constexpr, world_size: tl.constexpr, block: tl.constexpr
) -> None:  # fmt: skip
    """Waits for all ranks, sums all buffers through the table of peer pointers, waits again."""
    meet(pads, rank, world_size)
    table = buffers.to(tl.pointer_type(tl.uint64))
    offsets = tl.arange(0, block)
    total = tl.zeros([block], dtype=tl.float32)
    for peer in range(world_size):
        buffer = tl.load(table + peer).to(tl.pointer_type(tl.float32))
        total += tl.load(buffer + offsets, mask=offsets < count, other=0.0)
    tl.store(out + offsets, total, mask=offsets < count)
    meet(pads, rank, world_size)
