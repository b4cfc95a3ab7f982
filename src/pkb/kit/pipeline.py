"""Slots and counters for `pkb::pipeline`, made once and kept from call to call."""

import ctypes
from typing import Any

from pkb.kit.arguments import i32, u32
from pkb.kit.pads import buffers
from pkb.kit.staging import staging

_PIPELINES: dict[tuple[Any, ...], "Pipeline"] = {}


class Pipeline:
    """`kernel[blocks, threads](*pipe.tables, ..., pipe.base(turns))` calls
    `kernel(char* const* slots, pkb::u32* const* counts, int rank, int world, ..., pkb::u32 base)`.

    Every call on it must have at most `blocks` blocks and the same number of them and of steps (turns) on all ranks. The
    kernels of one pipeline must all take AHEAD alike, since what lies in its slots is reckoned from step to step.
    """

    def __init__(self, name: str, *, blocks: int, slot_bytes: int, device: Any, group: Any) -> None:
        self.stage = staging(slot_bytes, device, name=f"{name} slots", group=group)
        """This rank's slots, and the handle with everybody's."""
        handle = self.stage.handle
        self.rank, self.world = int(handle.rank), int(handle.world_size)
        counts = staging(4 * self.world * blocks, device, name=f"{name} counts", group=group)
        self.tables = buffers(handle), buffers(counts.handle), i32(self.rank), i32(self.world)
        """The four arguments that such a kernel begins with. Pass them on with a star."""
        self._turns = 0

    def base(self, turns: int) -> ctypes.c_uint32:
        """How many steps all launches before have made, as the kernel's argument; this launch makes `turns` more."""
        before = self._turns
        self._turns = (before + turns) % 2**32
        return u32(before)


def pipeline(name: str, *, blocks: int, slot_bytes: int, device: Any, group: Any = None) -> Pipeline:
    """The pipeline of this name and size: the same one in every call. All ranks must ask for the same, in the same order.

    `slot_bytes` are those of all slots of all blocks together: how a kernel lays them out is its own affair.
    """
    key = (name, blocks, slot_bytes, str(device), group.group_name if group is not None else "")
    if key not in _PIPELINES:
        _PIPELINES[key] = Pipeline(name, blocks=blocks, slot_bytes=slot_bytes, device=device, group=group)
    return _PIPELINES[key]


def turns(nbytes: int, *, blocks: int, least: int, most: int, unit: int = 16) -> tuple[int, int, int]:
    """How blocks share out so many bytes: the number of blocks, that of steps, and the bytes of a block in a step.

    At most `blocks` (all that wait must run at once: `kernel.resident_blocks`), and fewer if a block had less than
    `least` bytes. All steps are of one size, at most `most` and a multiple of `unit`, of which `most` is one too.
    """
    blocks = max(1, min(blocks, nbytes // least))
    count = max(1, -(-nbytes // (blocks * most)))
    return blocks, count, -(-nbytes // (blocks * count * unit)) * unit
