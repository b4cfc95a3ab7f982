"""Memory that several rank processes map: one file in a private tmpfs per allocation, data first, then the signal pad.

A region lives as long as anything refers to it: a tensor's storage (through the buffer protocol, which holds the
mapping), a handle, or a view that `get_buffer` gave out. Its file goes with it, so that a candidate which allocates
on every call does not fill the file system.
"""

import ctypes
import gc
import itertools
import math
import mmap
import os
import platform
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from pkb.rank.symmetric.activity import ACTIVITY

PAGE = mmap.PAGESIZE
COLLECT_BYTES = 256 << 20
"""Regions and handles refer to each other, so the cycle collector frees them; it counts objects, not bytes, and needs
a push."""


class Region(mmap.mmap):
    """A mapping of one rank's allocation, in the owner or in a peer. Created by `allocate` and `attach` below."""

    data_bytes: int
    pad_bytes: int
    path: Path
    address: int
    dtype: torch.dtype
    group_name: str | None
    number: int
    """Among the allocations of its owner."""
    owner: int | None
    """The rank that allocated it, where that is not this one."""
    handles: dict[str, Any]
    """Handles of finished rendezvous by group name; they are dropped together with the region."""

    @property
    def pad_address(self) -> int:
        return self.address + pad_offset(self.data_bytes)

    def tensor(self, sizes: Sequence[int], dtype: torch.dtype, byte_offset: int) -> torch.Tensor:
        """A tensor over these bytes; it keeps the mapping alive. The caller has checked the bounds."""
        count = math.prod(sizes)
        if count == 0:
            return torch.empty(tuple(sizes), dtype=dtype)
        return torch.frombuffer(self, dtype=dtype, count=count, offset=byte_offset).view(tuple(sizes))

    def pad_words(self) -> ctypes.Array[ctypes.c_uint32]:
        return (ctypes.c_uint32 * (self.pad_bytes // 4)).from_buffer(self, pad_offset(self.data_bytes))


_owned: "weakref.WeakValueDictionary[int, Region]" = weakref.WeakValueDictionary()
_attached: "weakref.WeakValueDictionary[int, Region]" = weakref.WeakValueDictionary()
_collect_at = COLLECT_BYTES
_numbers = itertools.count()
ON_MAP: Callable[[Region], None] | None = None
"""Told of every new mapping, where somebody wants to know: who records what is done to memory."""


def pad_offset(data_bytes: int) -> int:
    return -(-max(data_bytes, 1) // PAGE) * PAGE


def file_bytes(data_bytes: int, pad_bytes: int) -> int:
    return pad_offset(data_bytes) + -(-pad_bytes // PAGE) * PAGE


def allocate(directory: Path, data_bytes: int, *, pad_bytes: int, dtype: torch.dtype, group_name: str | None) -> Region:
    """A new region of this rank, all zero (as fresh device memory is, and as the first use of a signal pad needs)."""
    _make_room(data_bytes)
    # Not named by process id: ranks may live in PID namespaces of their own and then share the same small numbers.
    path = directory / f"symmetric-{secrets.token_hex(12)}"
    region = _map(path, os.O_CREAT | os.O_EXCL, data_bytes=data_bytes, pad_bytes=pad_bytes)
    region.dtype, region.group_name, region.handles = dtype, group_name, {}
    weakref.finalize(region, _unlink, str(path), os.getpid())
    _owned[region.address] = region
    region.number, region.owner = next(_numbers), None
    _tell(region)
    return region


def attach(path: Path, *, data_bytes: int, pad_bytes: int, number: int = 0, owner: int | None = None) -> Region:
    """A peer's region, mapped at an address of this process."""
    region = _map(path, 0, data_bytes=data_bytes, pad_bytes=pad_bytes)
    region.number, region.owner = number, owner
    _attached[region.address] = region
    _tell(region)
    return region


def _tell(region: Region) -> None:
    if ON_MAP is not None:
        ON_MAP(region)


def owned() -> Iterator[Region]:
    """The live regions of this rank."""
    return iter(list(_owned.values()))


def is_a_peers(tensor: torch.Tensor) -> bool:
    """Whether the tensor's first element lies in another rank's memory."""
    pointer = tensor.data_ptr()
    return any(region.address <= pointer < region.address + len(region) for region in list(_attached.values()))


def region_of(tensor: torch.Tensor) -> Region | None:
    """The region of this rank in which a tensor's storage lies; None for ordinary memory and for a peer's."""
    if tensor.device.type != "cpu":
        return None
    pointer = tensor.untyped_storage().data_ptr()
    found = _owned.get(pointer)
    if found is not None:
        return found
    return next((r for r in owned() if r.address <= pointer < r.address + max(r.data_bytes, 1)), None)


def _map(path: Path, flags: int, *, data_bytes: int, pad_bytes: int) -> Region:
    size = file_bytes(data_bytes, pad_bytes)
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        if flags & os.O_CREAT:
            # Takes the pages now: with ftruncate alone a full tmpfs would kill the rank by SIGBUS at its first store.
            os.posix_fallocate(descriptor, 0, size)
        elif os.fstat(descriptor).st_size < size:
            raise RuntimeError(f"symmetric memory: {path.name} is shorter than the {size} bytes its owner announced")
        region = Region(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    except OSError as error:
        if flags & os.O_CREAT:
            path.unlink(missing_ok=True)
        raise RuntimeError(f"symmetric memory: no room for {size} bytes: {error.strerror}") from error
    finally:
        os.close(descriptor)
    region.data_bytes, region.pad_bytes, region.path = data_bytes, pad_bytes, path
    region.address = ctypes.addressof(ctypes.c_char.from_buffer(region))
    return region


def _unlink(path: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked child's exit must not take the parent's file away
        Path(path).unlink(missing_ok=True)


def _make_room(data_bytes: int) -> None:
    global _collect_at
    total = data_bytes + sum(region.data_bytes for region in owned())
    if total > _collect_at:
        gc.collect()
        total = data_bytes + sum(region.data_bytes for region in owned())
        _collect_at = max(COLLECT_BYTES, 2 * total)


# --- ordering and waiting ---

_STRONGLY_ORDERED = platform.machine().lower() in ("x86_64", "amd64", "i686", "i386")
_lock = threading.Lock()


def fence() -> None:
    """Orders everything this rank read and wrote before it against everything after it, as its peers see it.

    Words are read and written through ctypes: one aligned 32-bit load or store each, and no compiler moves other
    memory accesses across the interpreter's call. On x86 that is enough: the hardware keeps loads in order, stores in
    order, and loads before later stores, and a one-writer flag protocol needs nothing else. arm64 keeps none of
    these. Python has no fence, so a lock is taken and given back twice: the first release orders what came before it,
    an acquire after a release is never moved before it (ARMv8 acquire and release are sequentially consistent with
    each other), and the second acquire orders what comes after.
    """
    if not _STRONGLY_ORDERED:
        with _lock:
            pass
        with _lock:
            pass


def wait_for_word(
    words: "ctypes.Array[ctypes.c_uint32]", index: int, value: int, *, timeout_ms: int, text: str, complaint: str
) -> None:
    """Returns when the word has this value. Politely: eight ranks may share two cores, and the one waited for needs
    one."""
    for _ in range(50):
        if words[index] == value:
            return
    ACTIVITY.waiting(text)
    try:
        give_up = time.monotonic() + timeout_ms / 1000 if timeout_ms > 0 else math.inf
        yields, nap_s = 0, 10e-6
        while words[index] != value:
            if yields < 100:
                yields += 1
                os.sched_yield()
            else:
                time.sleep(nap_s)
                nap_s = min(2 * nap_s, 100e-6)
            if time.monotonic() > give_up:
                raise RuntimeError(f"{complaint} (waited {timeout_ms} ms)")
    finally:
        ACTIVITY.done()
