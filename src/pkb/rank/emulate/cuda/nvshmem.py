"""`pkb.kit.nvshmem` on the emulated GPU: its heaps are symmetric memory of CPU ranks."""

import ctypes
from functools import lru_cache
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory

import pkb.kit.nvshmem
from pkb.kit.nvshmem.memory import BUFFERS, bytes_for
from pkb.rank.emulate.cuda.device import gpu


@lru_cache
def start() -> tuple[int, int]:
    """In place of `nvshmem.start`."""
    rank, world = dist.get_rank(), dist.get_world_size()
    _, addresses = _allocate(world + 1, torch.int64)
    gpu().library.emu_heaps_start(rank, world, addresses)
    return rank, world


def symmetric(count: int, dtype: Any = None, *, name: str = "") -> Any:
    """In place of `nvshmem.symmetric`."""
    dtype = torch.uint8 if dtype is None else dtype
    size = bytes_for(count, dtype)
    key = (name, size, dtype)
    if key not in BUFFERS:
        start()
        made, addresses = _allocate(size // dtype.itemsize, dtype)
        if gpu().library.emu_heap_add(addresses, ctypes.c_uint64(size)):
            raise pkb.kit.nvshmem.NvshmemError("more symmetric allocations than the emulated GPU keeps")
        BUFFERS[key] = made
    return BUFFERS[key]


_kept: list[Any] = []


def _allocate(count: int, dtype: Any) -> tuple[Any, Any]:
    """A zeroed buffer, and where those of all ranks are."""
    gpu().synchronize()
    module = cast(Any, symmetric_memory)
    made = module.empty(count, dtype=dtype, device="cpu")
    handle = module.rendezvous(made, dist.group.WORLD)
    _kept.append((made, handle))
    made.zero_()
    handle.barrier(channel=0)
    return made, (ctypes.c_uint64 * handle.world_size)(*handle.buffer_ptrs)


def install() -> None:
    kit = cast(Any, pkb.kit.nvshmem)
    kit.start, kit.symmetric = start, symmetric
