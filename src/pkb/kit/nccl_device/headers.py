"""The headers of NCCL's device API, of the very version that is loaded: kernels read structures that the library fills."""

import contextlib
import ctypes
import importlib.util
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pkb.kit.errors import CompilerMissing

NEEDED = (2, 32)
"""From this version on the library fills the structures for the version that kernels were compiled with, by their size."""
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]nccl(?:_device)?(?:/[\w/]+)?\.h[>"]', re.MULTILINE)
_LIBRARY = re.compile(r"libnccl\.so[\d.]*$")


class NcclFound(NamedTuple):
    """What there is of the device API; `why_not` is empty where it can be used."""

    version: str
    include: Path | None
    library: Path | None
    """None where no NCCL is loaded, as in a build: there the headers alone are needed."""
    why_not: str


def found(library: Path | None = None) -> NcclFound:
    """By the library that is named, else the one that is loaded; without one, by `NCCL_HOME` or torch's wheel."""
    library = library or loaded_library()
    include = include_beside(library) if library else _installed()
    if include is None:
        where = f"{library} has no `include` beside it" if library else "no NCCL with headers is installed"
        return NcclFound("", None, library, f"{where}: its wheel has them (`pkb doctor --fix`)")
    version = header_version(include)
    named = ".".join(map(str, version))
    if library and (number := library_version(library)) != version:
        loaded = ".".join(map(str, number))
        return NcclFound(
            named, include, library, f"NCCL {loaded} is loaded, and {include} is of {named}: they must be the same"
        )
    if library and version < NEEDED:
        return NcclFound(named, include, library, f"NCCL {named} is loaded, {'.'.join(map(str, NEEDED))} is needed")
    return NcclFound(named, include, library, "")


def wanted(source: str) -> Path | None:
    """The folder for a CUDA source that includes them, None for any other. Raises `CompilerMissing`."""
    if not _INCLUDED.search(source):
        return None
    library = loaded_library()
    include = include_beside(library) if library else _installed()
    if include is None:
        raise CompilerMissing(f"the source includes NCCL's headers: {found().why_not}")
    return include


def identity(include: Path) -> str:
    """For the key of a build: two versions never share one, nor does a folder that was changed by hand."""
    files = sorted(path for path in include.rglob("*") if path.is_file())
    sizes = " ".join(f"{path.relative_to(include)}:{path.stat().st_size}" for path in files)
    return f"nccl {header_version(include)} {sizes}"


class _SymbolInfo(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def loaded_library() -> Path | None:
    """The NCCL of this process: the one that its name stands for, which the judge may have preloaded in the place of torch's.
    torch's wheel may be mapped beside it, so that is asked first."""
    everything = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):
        info = _SymbolInfo()
        if everything.dladdr(ctypes.cast(everything.ncclGetVersion, ctypes.c_void_p), ctypes.byref(info)) and info.file:
            return Path(info.file.decode())
    maps = Path("/proc/self/maps")
    lines = maps.read_text(errors="replace").splitlines() if maps.exists() else []
    paths = (line.split(maxsplit=5)[-1] for line in lines)
    return next((Path(path) for path in paths if _LIBRARY.search(path)), None)


def include_beside(library: Path) -> Path | None:
    """`lib/libnccl.so.2` has its headers in `include`, as in the wheel; a library by itself in the same folder."""
    for folder in (library.parent, library.parent.parent):
        if (folder / "include" / "nccl_device.h").is_file():
            return folder / "include"
    return None


@lru_cache
def header_version(include: Path) -> tuple[int, ...]:
    text = (include / "nccl.h").read_text(errors="replace")
    matches = (re.search(rf"#define NCCL_{part} (\d+)", text) for part in _PARTS)
    return tuple(int(match[1]) if match else 0 for match in matches)


_PARTS = ("MAJOR", "MINOR", "PATCH")


@lru_cache
def library_version(library: Path) -> tuple[int, ...]:
    number = ctypes.c_int()
    if ctypes.CDLL(str(library)).ncclGetVersion(ctypes.byref(number)):
        raise OSError(f"{library} does not answer ncclGetVersion")
    return number.value // 10000, number.value // 100 % 100, number.value % 100


def _installed() -> Path | None:
    """Where a build looks, which loads no NCCL: the judge says by `NCCL_HOME` which one its ranks load."""
    homes = [Path(os.environ["NCCL_HOME"])] if os.environ.get("NCCL_HOME") else []
    spec = importlib.util.find_spec("nvidia")
    homes += [Path(base) / "nccl" for base in (spec.submodule_search_locations or ())] if spec else []
    return next((home / "include" for home in homes if (home / "include" / "nccl_device.h").is_file()), None)
