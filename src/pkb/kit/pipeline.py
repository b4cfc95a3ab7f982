"""Slots and counts for `pkb::pipeline`, made once and kept from call to call."""

import ctypes
from typing import Any

from pkb.kit.nvls import multicast_address
from pkb.kit.pads import MAX_RANKS, addresses
from pkb.kit.staging import check_group, staging
from pkb.kit.streams import enter_stream

_PIPELINES: dict[tuple[Any, ...], "Pipeline"] = {}
LOOK_AHEADS = (0, 1, 3, 7)
"""Those for which the number of slots is a power of two."""


class Pipe(ctypes.Structure):
    """The device's struct of this name, a kernel parameter by value."""

    _fields_ = (
        ("slots", ctypes.c_uint64 * MAX_RANKS),
        ("counts", ctypes.c_uint64 * MAX_RANKS),
        ("own_counts", ctypes.c_uint64),
        ("multicast", ctypes.c_uint64),
        ("rank", ctypes.c_int32),
        ("world", ctypes.c_int32),
        ("blocks", ctypes.c_uint32),
        ("slot_bytes", ctypes.c_uint32),
        ("slots_each", ctypes.c_uint32),
        ("ahead", ctypes.c_uint32),
        ("turns", ctypes.c_uint32),
    )

    @property
    def most_blocks(self) -> int:
        """A larger grid would use others' slots and counts: its launch is refused."""
        return int(self.blocks)


class Pipeline:
    """`kernel[blocks, threads](pipe(turns), ...)` calls `kernel(const __grid_constant__ pkb::Pipe pipe, ...)`.

    Every launch on it must have the same number of blocks, at most `blocks`, and of steps (turns) on all ranks. Nothing
    is counted on the host: docs/kit.md says what that is good for.
    """

    def __init__(self, name: str, *, blocks: int, slot_bytes: int, ahead: int, device: Any, group: Any) -> None:
        if ahead not in LOOK_AHEADS:
            raise ValueError(f"a look-ahead of {ahead}: it is one of {LOOK_AHEADS}")
        if slot_bytes % 16 or slot_bytes >= 2**32:
            raise ValueError(f"a slot of {slot_bytes} bytes: it must be a multiple of 16, below 4 GiB")
        slots_each = 2 * ahead + 2  # why as many are enough is said at pkb::pipeline
        own = f"{name} {blocks} {slot_bytes} {ahead}"  # others' slots lie elsewhere in a buffer of this size
        self.stage = staging(blocks * slots_each * slot_bytes, device, name=f"{own} slots", group=group)
        """This rank's slots, and the handle with everybody's."""
        handle = self.stage.handle
        self.rank, self.world, self.blocks = int(handle.rank), int(handle.world_size), blocks
        self._counts = staging(4 * self.world * blocks, device, name=f"{own} counts", group=group)
        self._device, self._group = device, group
        self._resident: dict[tuple[Any, ...], int] = {}
        self._structs: dict[tuple[int, bool], Pipe] = {}
        self._fields = {
            "slots": addresses(handle),
            "counts": addresses(self._counts.handle),
            "own_counts": self._counts.buffer.data_ptr(),
            "rank": self.rank,
            "world": self.world,
            "blocks": blocks,
            "slot_bytes": slot_bytes,
            "slots_each": slots_each,
            "ahead": ahead,
        }

    def __call__(self, turns: int, *, nvls: bool = False) -> Pipe:
        """The parameter of a launch of so many steps, which comes next on the current stream. With `nvls` it has the
        multicast address of the slots.
        """
        check_group(self._group)
        enter_stream(self._device)
        key = turns, nvls
        if key not in self._structs:
            if not 0 < turns < 2**31:
                raise ValueError(f"{turns} steps in one launch")
            multicast = multicast_address(self.stage.handle) if nvls else 0
            self._structs[key] = Pipe(turns=turns, multicast=multicast, **self._fields)
        return self._structs[key]

    def resident_blocks(self, kernel: Any, threads: int, *, shared: int = 0) -> int:
        """The largest grid of this kernel on this pipeline: all its blocks run at once on every rank. The same number
        on all ranks, also where one has fewer SMs than the others.
        """
        key = (kernel, threads, shared)
        if key not in self._resident:
            resident = kernel.resident_blocks(threads, shared=shared, sms=self.stage.sms)
            self._resident[key] = max(1, min(self.blocks, resident))
        return self._resident[key]


def pipeline(
    name: str, *, blocks: int, slot_bytes: int = 16, ahead: int = 0, device: Any, group: Any = None
) -> Pipeline:
    """The pipeline of this name and size: the same one in every call. All ranks must ask for the same, in the same order.

    `slot_bytes` are those of one slot, `ahead` is how many steps blocks produce ahead of what they consume. A block has
    `2 * ahead + 2` slots.
    """
    import torch.distributed as dist

    group = group or dist.group.WORLD
    key = (name, blocks, slot_bytes, ahead, str(device), group)
    if key not in _PIPELINES:
        _PIPELINES[key] = Pipeline(name, blocks=blocks, slot_bytes=slot_bytes, ahead=ahead, device=device, group=group)
    return _PIPELINES[key]


def turns(nbytes: int, *, blocks: int, least: int, most: int, unit: int = 16) -> tuple[int, int, int]:
    """How blocks share out so many bytes: the number of blocks, that of steps, and the bytes of a block in a step.

    At most `blocks` (all that wait must run at once: `pipe.resident_blocks`), and fewer if a block had less than
    `least` bytes. All steps are of one size, at most `most` and a multiple of `unit`, of which `most` is one too;
    and of eight of them where that fits: with units of 16 bytes, whole cache lines.
    """
    blocks = max(1, min(blocks, nbytes // least))
    count = max(1, -(-nbytes // (blocks * most)))
    chunk, lines = (-(-nbytes // (blocks * count * of)) * of for of in (unit, 8 * unit))
    return blocks, count, lines if lines <= most else chunk
