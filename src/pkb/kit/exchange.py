"""Stages for kernels that end with `pkb::finish_grid`, made once and kept from call to call."""

import ctypes
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

from pkb.kit.pads import buffers
from pkb.kit.staging import StagingBuffer, staging

_HEAD = 1024
"""Bytes of a stage that are finish_grid's own."""
_CALLS: dict[int, tuple[StagingBuffer, Iterator[int]]] = {}
"""By the id of a stage, which no other gets while it is held here: the stage and the numbers of its next calls."""


class Peers(ctypes.Structure):
    """The device's struct of this name, a kernel parameter by value."""

    _fields_ = (
        ("stages", ctypes.c_uint64),
        ("rank", ctypes.c_int32),
        ("world", ctypes.c_int32),
        ("epoch", ctypes.c_uint32),
    )


class ExchangeRegion(NamedTuple):
    """What one call needs: `kernel[blocks, threads](now.peers, ..., now.region)` calls
    `kernel(const __grid_constant__ pkb::Peers p, ..., pkb::u64 region)`.
    """

    peers: Peers
    region: int
    """Where this call's data begin in every rank's stage, in bytes."""
    buffer: Any
    """This rank's stage, a flat tensor of bytes."""


def exchange(name: str, *, region_bytes: int, regions: int = 2, device: Any, group: Any = None) -> ExchangeRegion:
    """The next call on the stage of this name and size. All ranks must ask for the same, in the same order.

    Regions, each of a multiple of 16 bytes, are used in turn. With two, one exchange in a call is enough: a rank that
    writes a region again has met its peers in the call between, and they had then finished the call before. With one, a
    call's own exchanges must see to it that nobody overwrites what others still read.
    """
    stage = staging(_HEAD + regions * region_bytes, device, name=name, group=group)
    epoch = next(_CALLS.setdefault(id(stage), (stage, count(1)))[1])
    handle = stage.handle
    peers = Peers(buffers(handle).value, int(handle.rank), int(handle.world_size), epoch % 2**32)
    return ExchangeRegion(peers, _HEAD + epoch % regions * region_bytes, stage.buffer)
