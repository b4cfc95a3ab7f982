"""Symmetric memory of NVSHMEM as tensors, made once and kept."""

from typing import Any

from pkb.kit.nvshmem.host import NvshmemError, library, start

_BUFFERS: dict[tuple[str, int], Any] = {}
_LEAST_BYTES = 512


def size_of(nbytes: int) -> int:
    """What is allocated for so many bytes."""
    return 1 << (max(nbytes, _LEAST_BYTES) - 1).bit_length()


def symmetric(nbytes: int, *, name: str = "") -> Any:
    """A zeroed symmetric buffer of at least so many bytes, the same one for the same name and size: a flat uint8 tensor.

    Collective on first use: all ranks ask for the same names and sizes in the same order. Sizes are rounded up to powers
    of two, so that few buffers serve many shapes; what is in a buffer stays from call to call.
    """
    import torch

    size = size_of(nbytes)
    if (name, size) not in _BUFFERS:
        rank, _ = start()
        torch.cuda.synchronize()  # the allocation waits for all ranks
        address = library().nvshmem_malloc(size)
        if not address:
            raise NvshmemError(f"rank {rank}: the symmetric heap has no {size} bytes left for {name!r}")
        made = torch.as_tensor(_Memory(address, size), device="cuda")
        made.zero_()
        torch.cuda.synchronize()
        library().nvshmem_barrier_all()  # nobody signals into a buffer that is not yet zeroed
        _BUFFERS[name, size] = made
    return _BUFFERS[name, size]


class _Memory:
    """Device memory as torch takes it over from other libraries."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (size,), "strides": None, "typestr": "|u1", "version": 2,
        }  # fmt: skip
