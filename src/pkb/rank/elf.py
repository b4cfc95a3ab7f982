"""As much of ELF as it takes to see what a library imports: its sections, and the names among its dynamic symbols."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

DYNAMIC_SYMBOLS, CONTENTS = 11, 1
"""Types of sections."""
UNREADABLE = (OSError, ValueError, IndexError, OverflowError, struct.error)
"""What reading a file may raise that is none, or is cut short."""
_SYMBOL = struct.Struct("<IBBH16x")
"""Name, info, visibility, and the section that defines it: 0 where another library must."""


class Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    start: int
    length: int
    link: int


def sections_of(data: bytes) -> list[Section]:
    if data[:5] != b"\x7fELF\x02":
        raise ValueError("no ELF file of 64 bits")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    return [Section(*struct.unpack_from("<IIQQQQI", data, table + size * index)) for index in range(count)]


def section_name(data: bytes, sections: list[Section], section: Section) -> bytes:
    (names,) = struct.unpack_from("<H", data, 0x3E)
    return _text(data, sections[names].start + section.name)


def undefined_symbols(data: bytes, sections: list[Section]) -> Iterator[str]:
    """What other libraries must define."""
    for table in sections:
        if table.kind != DYNAMIC_SYMBOLS:
            continue
        names = sections[table.link].start
        for at in range(table.start, table.start + table.length, _SYMBOL.size):
            name, _, _, defined_in = _SYMBOL.unpack_from(data, at)
            if defined_in == 0:
                yield _text(data, names + name).decode(errors="replace")


def _text(data: bytes, at: int) -> bytes:
    return data[at : data.index(b"\0", at)]
