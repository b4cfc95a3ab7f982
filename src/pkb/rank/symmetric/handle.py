"""The handle that `rendezvous` returns on the cpu platform, with the interface of torch's `_SymmetricMemory`.

Pads are laid out as torch lays them out: the word at `channel * world_size + source` of the destination's pad carries
the signal of that source. It has one writer of 1 (the source) and one writer of 0 (the destination), so plain loads
and stores are enough where CUDA uses compare-and-swap, and kernels of a candidate may use the same words with
atomics.
"""

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch

from pkb.rank.symmetric.activity import ACTIVITY
from pkb.rank.symmetric.region import Region, fence, pad_offset, wait_for_word


class Handle:
    """Symmetric memory of one group: this rank's region and those of its peers, by rank of the group."""

    has_switch = False
    """Whether handles have a multicast address: with an emulated switch only."""
    signal_pad_size: int = 9216
    """In bytes; on the class it is the size of pads to come, as in torch."""

    def __init__(self, regions: Sequence[Region], *, rank: int, group_name: str) -> None:
        self._regions = list(regions)
        self.rank = rank
        self.world_size = len(self._regions)
        self.group_name = group_name
        self.device = torch.device("cpu")
        self.buffer_size = self._regions[rank].data_bytes
        self.signal_pad_size = self._regions[rank].pad_bytes
        self.offset = 0
        self.multicast_ptr = 0  # an emulated switch sets it (pkb.rank.emulate.cuda.switch)
        self._buffers = [region.address for region in self._regions]
        self._pads = [region.pad_address for region in self._regions]
        # Device code takes the address of an array of addresses; on a CPU that is an array of the host's.
        self._buffers_table = (ctypes.c_int64 * self.world_size)(*self._buffers)
        self._pads_table = (ctypes.c_int64 * self.world_size)(*self._pads)
        self._words = [region.pad_words() for region in self._regions]

    # --- addresses ---

    @property
    def buffer_ptrs(self) -> list[int]:
        ACTIVITY.peer_accesses += 1
        return list(self._buffers)

    @property
    def buffer_ptrs_dev(self) -> int:
        ACTIVITY.peer_accesses += 1
        return ctypes.addressof(self._buffers_table)

    @property
    def signal_pad_ptrs(self) -> list[int]:
        ACTIVITY.peer_accesses += 1
        return list(self._pads)

    @property
    def signal_pad_ptrs_dev(self) -> int:
        ACTIVITY.peer_accesses += 1
        return ctypes.addressof(self._pads_table)

    # --- tensors ---

    def get_buffer(self, rank: int, sizes: Sequence[int], dtype: torch.dtype, storage_offset: int = 0) -> torch.Tensor:
        ACTIVITY.peer_accesses += rank != self.rank
        return self._view(rank, sizes, dtype, storage_offset)

    def _view(self, rank: int, sizes: Sequence[int], dtype: torch.dtype, storage_offset: int = 0) -> torch.Tensor:
        """Uncounted, for torch's own operators: what they touch says nothing about the candidate's kernels."""
        self._check_rank(rank, "get_buffer")
        needed = (math.prod(sizes) + storage_offset) * dtype.itemsize
        if storage_offset < 0 or needed > self.buffer_size:
            raise RuntimeError(
                f"SymmetricMemory::get_buffer: the requested size ({needed} bytes) exceeds the allocated size "
                f"({self.buffer_size} bytes)"
            )
        return self._regions[rank].tensor(sizes, dtype, storage_offset * dtype.itemsize)

    def get_remote_tensor(self, peer: int, sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return self.get_buffer(peer, sizes, dtype)

    def get_signal_pad(
        self, rank: int, sizes: Sequence[int] | None = None, dtype: torch.dtype | None = None, storage_offset: int = 0
    ) -> torch.Tensor:
        self._check_rank(rank, "get_signal_pad")
        dtype = torch.uint32 if dtype is None else dtype
        if not sizes:
            sizes = [self.signal_pad_size // dtype.itemsize - storage_offset]
        needed = (math.prod(sizes) + storage_offset) * dtype.itemsize
        if storage_offset < 0 or needed > self.signal_pad_size:
            raise RuntimeError(
                f"SymmetricMemory::get_signal_pad: the requested size ({needed} bytes) exceeds the allocated size "
                f"({self.signal_pad_size} bytes)"
            )
        ACTIVITY.peer_accesses += rank != self.rank
        region = self._regions[rank]
        return region.tensor(sizes, dtype, pad_offset(region.data_bytes) + storage_offset * dtype.itemsize)

    # --- signals ---

    def barrier(self, channel: int = 0, timeout_ms: int = 0) -> None:
        """Returns when every rank of the group has called it on this channel; what they wrote before is then
        visible."""
        self._check_channel(channel)
        self._meet(channel, timeout_ms)

    def _meet(self, channel: int = 0, timeout_ms: int = 0) -> None:
        for step in range(1, self.world_size):
            self._put((self.rank + step) % self.world_size, channel, timeout_ms, "barrier")
        for step in range(1, self.world_size):
            self._take((self.rank - step) % self.world_size, channel, timeout_ms, "barrier")

    def put_signal(self, dst_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
        """Signals a rank, once it has consumed the signal before this one."""
        self._check_rank(dst_rank, "put_signal")
        self._check_channel(channel)
        self._put(dst_rank, channel, timeout_ms, "put_signal")

    def wait_signal(self, src_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
        """Waits for the signal of a rank and consumes it."""
        self._check_rank(src_rank, "wait_signal")
        self._check_channel(channel)
        self._take(src_rank, channel, timeout_ms, "wait_signal")

    def _put(self, peer: int, channel: int, timeout_ms: int, name: str) -> None:
        words, index = self._words[peer], channel * self.world_size + self.rank
        wait_for_word(
            words, index, 0, timeout_ms=timeout_ms,
            text=f"{name}(channel={channel}) waiting for rank {peer} to consume the last signal",
            complaint=f"SymmetricMemory::{name}: rank {self.rank} timed out on channel {channel}: rank {peer} did not "
            "consume the last signal",
        )  # fmt: skip
        self._set_word(peer, index, 1)

    def _take(self, peer: int, channel: int, timeout_ms: int, name: str) -> None:
        words, index = self._words[self.rank], channel * self.world_size + peer
        wait_for_word(
            words, index, 1, timeout_ms=timeout_ms,
            text=f"{name}(channel={channel}) waiting for rank {peer}",
            complaint=f"SymmetricMemory::{name}: rank {self.rank} timed out on channel {channel} waiting for "
            f"rank {peer}",
        )  # fmt: skip
        self._set_word(self.rank, index, 0)

    def _set_word(self, owner: int, index: int, value: int) -> None:
        """1 is a release: what this rank wrote is visible before the signal is. 0 comes with an acquire: nothing that
        follows is read before the signal was seen."""
        fence()
        self._words[owner][index] = value

    def _check_rank(self, rank: int, name: str) -> None:
        if not 0 <= rank < self.world_size:
            raise RuntimeError(f"SymmetricMemory::{name}: rank {rank} is not in a group of {self.world_size} ranks")

    def _check_channel(self, channel: int) -> None:
        channels = self.signal_pad_size // (4 * self.world_size)
        if not 0 <= channel < channels:
            raise RuntimeError(
                f"channel must be in 0 ... {channels - 1} with a signal pad of {self.signal_pad_size} bytes and "
                f"{self.world_size} ranks, got {channel}"
            )

    # --- static members of torch's class ---

    def boxed(self) -> "Handle":
        return self

    @staticmethod
    def has_multicast_support(device_type: Any, device_index: int, /) -> bool:
        return Handle.has_switch

    @staticmethod
    def stream_write_value32(input: torch.Tensor, offset: int, val: int) -> torch.Tensor:
        return Handle.memset32(input, offset, val)

    @staticmethod
    def memset32(input: torch.Tensor, offset: int, val: int, count: int = 1) -> torch.Tensor:
        """Writes 32-bit words of a tensor; in program order here, where CUDA has stream order."""
        if input.dim() != 1 or not input.is_contiguous() or input.element_size() != 4:
            raise RuntimeError("symm_mem::memset32_: input must be a flat, contiguous tensor of 32-bit elements")
        if offset < 0 or count <= 0 or offset + count > input.numel():
            raise RuntimeError(f"symm_mem::memset32_: {count} words at {offset} are out of {input.numel()}")
        if not 0 <= val < 2**32:
            raise RuntimeError(f"symm_mem::memset32_: {val} does not fit into 32 bits")
        words = (ctypes.c_uint32 * count).from_address(input.data_ptr() + 4 * offset)
        fence()
        for index in range(count):
            words[index] = val
        return input
