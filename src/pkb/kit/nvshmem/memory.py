"""Symmetric memory of NVSHMEM as tensors, made once and kept."""

from typing import Any

from pkb.kit.foreign_memory import ForeignMemory
from pkb.kit.nvshmem.host import NvshmemError, heap_bytes, library, start

BUFFERS: dict[tuple[str, int, Any], Any] = {}
"""By name, size in bytes and dtype."""
_LEAST_BYTES = 512


def bytes_for(count: int, dtype: Any) -> int:
    """What is allocated for so many elements."""
    return 1 << (max(count * dtype.itemsize, _LEAST_BYTES) - 1).bit_length()


def symmetric(count: int, dtype: Any = None, *, name: str = "") -> Any:
    """A zeroed symmetric buffer of at least so many elements (bytes, if no dtype is given), as a flat tensor; the same one
    for the same name, dtype and size.

    Collective on first use: all ranks ask for the same in the same order. Sizes are rounded up to powers of two, so that
    few buffers serve many shapes; what is in a buffer stays from call to call.
    """
    import torch

    dtype = torch.uint8 if dtype is None else dtype
    size = bytes_for(count, dtype)
    key = (name, size, dtype)
    if key not in BUFFERS:
        rank, _ = start()
        torch.cuda.synchronize()  # the allocation waits for all ranks
        address = library().nvshmem_malloc(size)
        if not address:
            raise NvshmemError(
                f"rank {rank}: the symmetric heap of {heap_bytes()} bytes has no {size} left for {name!r}; heaps of all "
                f"ranks share the device memory that was free when NVSHMEM started"
            )
        made = torch.as_tensor(ForeignMemory(address, size), device="cuda").view(dtype)
        made.zero_()
        torch.cuda.synchronize()
        library().nvshmem_barrier_all()  # nobody signals into a buffer that is not yet zeroed
        BUFFERS[key] = made
    return BUFFERS[key]


def heap_tensors() -> list[Any]:
    """All that has been allocated in this process."""
    return list(BUFFERS.values())
