"""`pkb.kit.nvshmem` on the emulated GPU: its heaps are symmetric memory of CPU ranks."""

import ctypes
from functools import lru_cache
from typing import Any, cast

import torch.distributed as dist

import pkb.kit.nvshmem
from pkb.kit.nvshmem.memory import size_of
from pkb.kit.staging import staging
from pkb.rank.emulate.cuda.device import gpu

_HEAP = "nvshmem heap"
_added: set[tuple[str, int]] = set()


@lru_cache
def start() -> tuple[int, int]:
    """In place of `nvshmem.start`."""
    rank, world = dist.get_rank(), dist.get_world_size()
    words = staging(8 * (world + 1), "cpu", name="nvshmem barriers")
    gpu().library.emu_heaps_start(rank, world, _addresses(words.handle))
    return rank, world


def symmetric(nbytes: int, *, name: str = "") -> Any:
    """In place of `nvshmem.symmetric`."""
    start()
    size = size_of(nbytes)
    stage = staging(size, "cpu", name=f"{_HEAP} {name}")
    if (name, size) not in _added:
        if gpu().library.emu_heap_add(_addresses(stage.handle), ctypes.c_uint64(size)):
            raise pkb.kit.nvshmem.NvshmemError("more symmetric allocations than the emulated GPU keeps")
        _added.add((name, size))
    return stage.buffer


def _addresses(handle: Any) -> Any:
    return (ctypes.c_uint64 * handle.world_size)(*handle.buffer_ptrs)


def install() -> None:
    kit = cast(Any, pkb.kit.nvshmem)
    kit.start, kit.symmetric = start, symmetric
