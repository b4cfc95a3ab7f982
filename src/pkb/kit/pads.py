"""Tables of peer pointers for kernels: what `torch.distributed._symmetric_memory.rendezvous` returns, ready to pass.

`kernel[blocks, 512](kit.buffers(handle), *kit.barrier_pads(handle), n)` calls
`extern "C" __global__ void kernel(float* const* buffers, pkb::u32* const* pads, int rank, int world, long long n)`.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from pkb.kit.arguments import i32, ptr

MAX_RANKS = 64
"""As in pkb.cuh."""


class Pads(NamedTuple):
    """Three kernel arguments in a row: the table of signal pads, this rank, the number of ranks."""

    signal_pads: ctypes.c_uint64
    rank: ctypes.c_int32
    world: ctypes.c_int32


def barrier_pads(handle: Any) -> Pads:
    """The arguments that every barrier of pkb.cuh starts with. Pass them on with a star."""
    return Pads(ptr(handle.signal_pad_ptrs_dev), i32(handle.rank), i32(handle.world_size))


def buffers(handle: Any) -> ctypes.c_uint64:
    """The table of all ranks' buffers, as `T* const*`. Entry `rank` is this rank's own."""
    check_offset(handle)
    return ptr(handle.buffer_ptrs_dev)


def addresses(handle: Any) -> Any:
    """Of all ranks' buffers, as the array that `Pipe` and `Peers` hold by value."""
    check_offset(handle)
    found = [int(address) for address in handle.buffer_ptrs]
    if len(found) > MAX_RANKS:
        raise RuntimeError(f"{len(found)} ranks: pkb.cuh has room for the addresses of {MAX_RANKS}")
    return (ctypes.c_uint64 * MAX_RANKS)(*found)


def check_offset(handle: Any) -> None:
    """Raises where a tensor does not begin with its allocation: tables hold the addresses of allocations."""
    offset = int(getattr(handle, "offset", 0))
    if offset:
        raise RuntimeError(f"this tensor lies {offset} bytes into its symmetric allocation; kernels would miss it")


def channels(handle: Any) -> int:
    """How many barrier channels the signal pads hold: the largest number of blocks with a channel each."""
    return int(handle.signal_pad_size) // (4 * int(handle.world_size))


def pointer_table(addresses: Sequence[Any], *, device: Any = "cuda") -> Any:
    """A device array of pointers, from addresses or tensors: for tables that torch does not make.

    Keep the returned tensor alive for as long as kernels use it, and make it once: it costs a copy to the device.
    """
    import torch

    numbers = [item.data_ptr() if isinstance(item, torch.Tensor) else int(item) for item in addresses]
    return torch.tensor(numbers, dtype=torch.int64).to(device)
