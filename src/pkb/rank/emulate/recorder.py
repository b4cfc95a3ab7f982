"""The recorder of memory accesses (kit/emulated/runtime/record.cpp) as Python functions.

What runs on the emulated GPU records itself. What Python runs in its place (operators of torch, programs of Triton, barriers
of symmetric memory) says here what it does. Nothing is recorded before `begin` and after `end`; all functions may be called
then too and do nothing. docs/races.md says what becomes of it.
"""

import ctypes
import subprocess
from collections import defaultdict
from ctypes import c_char_p, c_int, c_uint32, c_uint64
from enum import IntEnum
from functools import lru_cache
from pathlib import Path

from pkb.kit.cuda import DEVICE_HEADERS
from pkb.kit.emulated.recipe import INCLUDE, runtime_recipe

ALL_STREAMS = 2**64 - 1
_TEXT_BYTES = 1 << 20
_ADDRESSES_AT_ONCE = 2000
_LOOKUP_LIMIT_S = 60
_KIT = frozenset(path.name for path in DEVICE_HEADERS.iterdir())


class Host(IntEnum):
    """Kinds of host events; events.h says what each means."""

    CALL_BEGIN = 1
    CALL_END = 2
    OPERATION_BEGIN = 3
    OPERATION_END = 4
    STREAM_JOIN = 5
    SIGNAL = 6
    WAIT = 7


class Order(IntEnum):
    WEAK = 0
    RELAXED = 1
    ACQUIRE = 2
    RELEASE = 3
    ACQ_REL = 4
    SC = 5
    OPERATOR = 6


class Scope(IntEnum):
    CTA = 1
    CLUSTER = 2
    GPU = 3
    SYS = 4


class AccessWay(IntEnum):
    READ = 0
    WRITE = 1
    UPDATE = 2


@lru_cache
def _library() -> ctypes.CDLL:
    """The emulator's runtime: also where a candidate has no CUDA."""
    library = ctypes.CDLL(str(runtime_recipe().obtain().path), mode=ctypes.RTLD_GLOBAL)
    library.emu_record_begin.argtypes = [c_int] * 4
    library.emu_weak_begin.argtypes = [c_uint32]
    library.emu_record_memory.argtypes = [c_uint64, c_uint64, c_uint32, c_uint32]
    library.emu_record_site.argtypes = [c_char_p, c_int, c_char_p]
    library.emu_record_site.restype = c_uint32
    library.emu_record_host.argtypes = [c_int, c_uint64, c_uint32]
    library.emu_record_access.argtypes = [c_uint64, c_uint64, c_int, c_uint32]
    library.emu_record_strong.argtypes = [c_uint64, c_uint64, c_int, c_int, c_int, c_uint32]
    library.emu_record_thread.argtypes = [c_uint32] * 3
    library.emu_record_unnamed.argtypes = [c_char_p, c_uint32]
    library.emu_record_name_site.argtypes = [c_uint32, c_char_p, c_int, c_char_p]
    return library


def begin(shared_fd: int, log_fd: int, *, rank: int, world: int, weak_seed: int | None = None) -> None:
    """Maps both files, which may be closed afterwards. With a `weak_seed` kernels run in weak execution:
    what they write to symmetric memory becomes visible late and in any order. Raises `OSError` where that fails."""
    failed = _library().emu_record_begin(shared_fd, log_fd, rank, world)
    if failed:
        raise OSError(failed, "the log of memory accesses cannot be mapped")
    if weak_seed is not None:
        failed = _library().emu_weak_begin(weak_seed)
        if failed:
            _library().emu_record_end()
            raise OSError(failed, "symmetric memory cannot be mapped twice")


def end() -> None:
    """Says which lines code addresses are, and closes the log."""
    if recording():
        _name_sites()
        _library().emu_record_end()


def recording() -> bool:
    return bool(_library().emu_recording())


def memory(begin: int, size: int, *, allocation: int, owner: int) -> None:
    """These addresses of this process are symmetric allocation `allocation` of rank `owner`: the same number on all ranks."""
    _library().emu_record_memory(begin, size, allocation, owner)


def site(file: str, line: int, text: str) -> int:
    """A place in the candidate's text, for the calls below: the same arguments give the same number."""
    return int(_library().emu_record_site(file.encode(), line, text.encode()))


def host(kind: Host, subject: int = 0, *, site: int = 0) -> None:
    """`subject`: what the kind is about, as events.h says."""
    _library().emu_record_host(kind, subject, site)


def access(address: int, size: int, *, write: bool, site: int) -> None:
    """A weak access of the current virtual thread."""
    _library().emu_record_access(address, size, int(write), site)


def strong(address: int, size: int, *, way: AccessWay, order: Order, scope: Scope, site: int) -> None:
    """An atomic or otherwise strong access of the current virtual thread. Do it between `lock` and `unlock`, with this call."""
    _library().emu_record_strong(address, size, way, order, scope, site)


def lock() -> None:
    """Of all ranks, for a few microseconds: what is done and recorded under it has an exact place in the order of all ranks."""
    _library().emu_record_lock()


def unlock() -> None:
    _library().emu_record_unlock()


def thread(launch: int, block: int, thread: int) -> None:
    """Who does what is recorded next by Python. Launch 0 is the host, or inside of an operation that operation."""
    _library().emu_record_thread(launch, block, thread)


def _name_sites() -> None:
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    _library().emu_record_unnamed(text, len(text))
    by_module: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for row in text.value.decode(errors="replace").splitlines():
        name, offset, path = row.split(" ", 2)
        by_module[path].append((int(name), offset))
    for path, sites in by_module.items():
        for start in range(0, len(sites), _ADDRESSES_AT_ONCE):
            some = sites[start : start + _ADDRESSES_AT_ONCE]
            for (number, _), (file, line) in zip(some, _lines(path, [at for _, at in some]), strict=False):
                _library().emu_record_name_site(number, file.encode(), line, b"")


def _lines(module: str, offsets: list[str]) -> list[tuple[str, int]]:
    """File and line of code addresses: the innermost that is the candidate's own text, or else the kit's."""
    try:
        done = subprocess.run(
            ["addr2line", "-a", "-i", "-e", module, *offsets],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace",
            check=False, timeout=_LOOKUP_LIMIT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):  # binutils are there where g++ is, but a report without lines is one
        return []
    found: list[tuple[str, int]] = []
    chosen = 0  # 1: of the emulator's headers, 2: of the kit's, 3: of the candidate
    for line in done.stdout.splitlines():
        if line.startswith("0x"):
            found.append(("?", 0))
            chosen = 0
            continue
        file, _, number = line.partition(" ")[0].rpartition(":")
        whose = 1 if file.startswith(str(INCLUDE)) else 2 if Path(file).name in _KIT else 3
        if found and number.isdigit() and whose > chosen:
            found[-1], chosen = (Path(file).name, int(number)), whose
    return found
