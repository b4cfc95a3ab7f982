"""The words that all readers of this folder share."""

from typing import Literal, NamedTuple

PathName = Literal["copy_engine", "sm_load_store", "tma", "nvls", "library", "none"]

Kind = Literal["peer", "table", "multicast", "local"]
"""What a value in CUDA code may be: a pointer into a peer's memory; a table of such pointers; an NVLS address; a table
that is known to hold pointers of this rank only."""

DIRECT: frozenset[PathName] = frozenset({"copy_engine", "sm_load_store", "tma", "nvls"})


class PathUse(NamedTuple):
    path: PathName
    line: int
    """1-based; 0 for `none`."""
    text: str


class Found(NamedTuple):
    """A use, with how sure it is."""

    path: PathName
    line: int
    text: str
    weak: bool = False
    """It may as well serve this rank's own memory, or only prepare a transfer: told only where nothing surer is found."""


def settle(found: list[Found]) -> list[PathUse]:
    """Each path once per line, in the order of the file; weak evidence only where no direct path is sure."""
    sure = any(use.path in DIRECT and not use.weak for use in found)
    kept: dict[tuple[PathName, int], PathUse] = {}
    for use in found:
        if not (use.weak and sure):
            kept.setdefault((use.path, use.line), PathUse(use.path, use.line, use.text))
    return sorted(kept.values(), key=lambda use: (use.line, use.path))
