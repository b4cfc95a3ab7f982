"""Which collectives of NCCL or NVSHMEM a candidate's own libraries call from the host, read off their ELF files.

A collective that copy engines carry out leaves no kernel whose name would tell. That a library calls it is what is known: one
that is compiled in and never reached counts too, and a name that is put together at run time is not found.
"""

import contextlib
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pkb.types.protocol.limits import is_host_collective

_DYNAMIC_SYMBOLS, _CONTENTS = 11, 1
"""Types of sections in an ELF file."""
_SYMBOL = struct.Struct("<IBBH16x")
"""Name, info, visibility, and the section that defines it: 0 where another library must."""
_CONSTANTS = (b".rodata", b".data")
_LIBRARY_INSIDE = (b"ncclDevKernel", b"_on_stream_kernel")
"""Kernels of NCCL and NVSHMEM: linked in whole, they bring the names of all their functions, called or not."""

_UNREADABLE = (OSError, ValueError, IndexError, OverflowError, struct.error)


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    start: int
    length: int
    link: int


def host_collectives(libraries: Iterable[Path]) -> dict[str, str]:
    """By function: how a library comes to call it, in words."""
    found: dict[str, str] = {}
    for path in libraries:
        with contextlib.suppress(*_UNREADABLE):
            for function, how in _called(path.read_bytes()):
                found.setdefault(function, f"its extension {how} {function}")
    return found


def _called(data: bytes) -> Iterator[tuple[str, str]]:
    sections = _sections(data)
    imported = {
        name for table in sections if table.kind == _DYNAMIC_SYMBOLS for name in _undefined(data, table, sections)
    }
    yield from ((name, "imports") for name in sorted(imported) if is_host_collective(name))
    if imported.isdisjoint({"dlsym", "dlvsym"}) or any(mark in data for mark in _LIBRARY_INSIDE):
        return
    for section in sections:
        if section.kind == _CONTENTS and _name(data, sections, section).startswith(_CONSTANTS):
            for text in set(data[section.start : section.start + section.length].split(b"\0")):
                if is_host_collective(name := text.decode(errors="replace")):
                    yield name, "imports dlsym and holds the name"


def _sections(data: bytes) -> list[_Section]:
    if data[:5] != b"\x7fELF\x02":
        raise ValueError("no ELF file of 64 bits")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    return [_Section(*struct.unpack_from("<IIQQQQI", data, table + size * index)) for index in range(count)]


def _name(data: bytes, sections: list[_Section], section: _Section) -> bytes:
    (names,) = struct.unpack_from("<H", data, 0x3E)
    return _text(data, sections[names].start + section.name)


def _undefined(data: bytes, table: _Section, sections: list[_Section]) -> Iterator[str]:
    names = sections[table.link].start
    for at in range(table.start, table.start + table.length, _SYMBOL.size):
        name, _, _, defined_in = _SYMBOL.unpack_from(data, at)
        if defined_in == 0:
            yield _text(data, names + name).decode(errors="replace")


def _text(data: bytes, at: int) -> bytes:
    return data[at : data.index(b"\0", at)]
