"""Which collectives of NCCL or NVSHMEM a candidate's own libraries call from the host, read off their ELF files.

A collective that copy engines carry out leaves no kernel whose name would tell. That a library calls it is what is known: one
that is compiled in and never reached counts too, and a name that is put together at run time is not found.
"""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from pkb.rank.elf import CONTENTS, UNREADABLE, section_name, sections_of, undefined_symbols
from pkb.types.protocol.limits import is_host_collective

_CONSTANTS = (b".rodata", b".data")
_LIBRARY_INSIDE = (b"ncclDevKernel", b"_on_stream_kernel")
"""Kernels of NCCL and NVSHMEM: linked in whole, they bring the names of all their functions, called or not."""


def host_collectives(libraries: Iterable[Path]) -> dict[str, str]:
    """By function: how a library comes to call it, in words."""
    found: dict[str, str] = {}
    for path in libraries:
        with contextlib.suppress(*UNREADABLE):
            for function, how in _called(path.read_bytes()):
                found.setdefault(function, f"its extension {how} {function}")
    return found


def _called(data: bytes) -> Iterator[tuple[str, str]]:
    sections = sections_of(data)
    imported = set(undefined_symbols(data, sections))
    yield from ((name, "imports") for name in sorted(imported) if is_host_collective(name))
    if imported.isdisjoint({"dlsym", "dlvsym"}) or any(mark in data for mark in _LIBRARY_INSIDE):
        return
    for section in sections:
        if section.kind == CONTENTS and section_name(data, sections, section).startswith(_CONSTANTS):
            for text in set(data[section.start : section.start + section.length].split(b"\0")):
                if is_host_collective(name := text.decode(errors="replace")):
                    yield name, "imports dlsym and holds the name"
