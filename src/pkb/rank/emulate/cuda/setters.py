"""Who should have set a word of symmetric memory that a kernel waits for in vain.

Each rank keeps a board in a file that its peers can read: how far the blocks of its last kernel are, and which block has set
which word last (kit/emulated/runtime/board.h has the same layout). Like all that a candidate's process says, no verdict
depends on it.
"""

import ctypes
import mmap
import os
from ctypes import c_char, c_uint8, c_uint32, c_uint64
from pathlib import Path

import torch.distributed as dist

from pkb.rank.emulate.cuda.device import gpu
from pkb.rank.symmetric import rendezvous
from pkb.rank.symmetric.handle import Handle
from pkb.rank.symmetric.region import Region, file_bytes

_REGIONS, _BLOCKS, _WORDS = 256, 4096, 8192
MOST_NAMED = 3
_STATES = ("has not begun", "has not ended", "has ended")


class _Set(ctypes.Structure):
    _fields_ = (("address", c_uint64), ("block", c_uint32), ("launch", c_uint32))


class _Place(ctypes.Structure):
    _fields_ = (("file", c_char * 48), ("address", c_uint64))


class _Board(ctypes.Structure):
    _fields_ = (
        ("kernel", c_char * 96), ("launch", c_uint32), ("total", c_uint32), ("blocks", c_uint8 * _BLOCKS),
        ("set", _Set * _WORDS), ("count", c_uint32), ("places", _Place * _REGIONS),
    )  # fmt: skip


_mine: _Board | None = None


def install() -> None:
    rendezvous.ON_HANDLE.append(_watch)


def _watch(handle: Handle) -> None:
    """Notes where this rank has the memory of a group."""
    global _mine
    if _mine is None:
        _mine = _mapped(handle._regions[handle.rank].path.parent / f"board-{dist.get_rank()}", os.O_CREAT)
        gpu().library.emu_board(ctypes.byref(_mine))
    for region in handle._regions:
        if _mine.count < _REGIONS:
            _mine.places[_mine.count] = _Place(region.path.name.encode(), region.address)
            _mine.count += 1
            size = file_bytes(region.data_bytes, region.pad_bytes)
            gpu().library.emu_board_watch(c_uint64(region.address), c_uint64(size))


def _mapped(path: Path, flags: int = 0) -> _Board:
    size = ctypes.sizeof(_Board)
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        if flags:
            os.ftruncate(descriptor, size)
        return _Board.from_buffer(mmap.mmap(descriptor, size))
    finally:
        os.close(descriptor)


def should_have_set(region: Region, address: int, *, block: int, likely: int | None) -> str:
    """In words: the block that has set this word before, or how far those are that may. `likely` is the rank that sets it by
    torch's layout, `block` the number of the block that waits, whose peers often have the same."""
    if _mine is None:
        return ""
    boards = {int(path.name.split("-")[1]): _mapped(path) for path in region.path.parent.glob("board-*")}
    others = {rank: board for rank, board in sorted(boards.items()) if rank != dist.get_rank()}
    before = []
    for rank, board in others.items():
        if found := _last_set(board, region.path.name, address - region.address):
            before.append(
                f"block {found.block} of rank {rank} in launch {found.launch}, which {_progress(board, found.block)}"
            )
    if before:
        return f"; it was set by {', and by '.join(before[:MOST_NAMED])}"
    asked = {likely: boards[likely]} if likely in others else others
    words = [f"block {block} of rank {rank} {_progress(board, block)}" for rank, board in asked.items()]
    return f"; no block of another rank has set it: {', '.join(words[:MOST_NAMED]) or 'none has launched a kernel'}"


def _last_set(board: _Board, file: str, offset: int) -> _Set | None:
    for place in board.places[: min(board.count, _REGIONS)]:
        if place.file == file.encode():
            address = place.address + offset
            found = board.set[address * 0x9E3779B97F4A7C15 % 2**64 >> 51]
            return found if found.address == address else None
    return None


def _progress(board: _Board, block: int) -> str:
    if not board.launch:
        return "was never launched"
    if block >= min(board.total, _BLOCKS):
        return f"is not in its grid of {board.total}"
    state = board.blocks[block]
    kernel = board.kernel[:40].decode(errors="replace")
    return f"{_STATES[state] if state < len(_STATES) else 'is unknown'} in launch {board.launch} ({kernel})"
