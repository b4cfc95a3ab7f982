"""The words that all parts of this folder share."""

from typing import Literal, NamedTuple

PathName = Literal["copy_engine", "sm_load_store", "tma", "nvls", "library", "none", "unknown"]

Kind = Literal["peer", "table", "multicast", "local"]
"""What a pointer in CUDA code points to: a peer's memory; a table of pointers to peers; an NVLS address; a table that is
known to hold pointers of this rank only."""

DIRECT: frozenset[PathName] = frozenset({"copy_engine", "sm_load_store", "tma", "nvls"})


class Meaning(NamedTuple):
    """What an instruction or a call moves."""

    path: PathName
    weak: bool
    """It may as well serve this rank's own memory, or only prepare a transfer: told only where nothing surer is found."""


class CudaUse(NamedTuple):
    """A meaning at an offset of one of the candidate's strings, its owner."""

    path: PathName
    weak: bool
    owner: int
    at: int


class CallContext(NamedTuple):
    """How a CUDA function is called."""

    kinds: tuple[Kind | None, ...] = ()  # what its parameters point to
    resolved: bool = False  # all of that is known: a pointer of which nothing is said is this rank's own
    on_device: bool = False


class PathUse(NamedTuple):
    path: PathName
    line: int  # 1-based; 0 for `none`
    text: str
    weak: bool = False
