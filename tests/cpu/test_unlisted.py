"""What torch keeps no list of: which libraries import a call, and CUDA IPC asked for through ctypes."""

import contextlib
import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
from forked import in_child

from pkb.rank.unlisted import PEER_MEMORY_CALLS, libraries_that_open_peers, watch_peer_memory

CALLS = 'extern "C" int cudaIpcOpenMemHandle(void**, int, unsigned); extern "C" int entry() { return %s; }'
WORDS = 'extern "C" const char* entry() { return "cudaIpcOpenMemHandle"; }'


def library(folder: Path, name: str, text: str) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    source, out = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text(text)
    subprocess.run([compiler, "-shared", "-fPIC", "-O0", "-o", out, source], check=True)
    return out


def test_a_library_that_imports_the_call_is_told_from_one_that_names_it(tmp_path: Path) -> None:
    caller = library(tmp_path, "caller", CALLS % "cudaIpcOpenMemHandle(nullptr, 0, 0)")
    naming = library(tmp_path, "naming", WORDS)

    def found() -> list[str]:
        for path in (caller, naming):
            ctypes.CDLL(str(path), mode=1)  # lazily bound: there is no CUDA runtime here
        return [path.name for path in libraries_that_open_peers([tmp_path])]

    assert in_child(found) == ["caller.so"]
    assert in_child(lambda: libraries_that_open_peers([tmp_path])) == [], "neither is loaded"


def test_ctypes_is_watched() -> None:
    def found() -> int:
        opened: list[int] = []
        watch_peer_memory(lambda: opened.append(1), lambda: None, lambda _: None)
        libc = ctypes.CDLL(None)
        assert libc.getpid() > 0
        for look in (getattr, ctypes.CDLL.__getitem__):
            with contextlib.suppress(AttributeError):  # torch for CUDA has loaded a library that has it
                look(libc, f"cuda{PEER_MEMORY_CALLS[0]}")
        return len(opened)

    assert in_child(found) == 2


def test_collectives_of_nccl_are_counted_when_they_are_called(tmp_path: Path) -> None:
    text = "int ncclAllReduce(int x) { return x; } int ncclCommDestroy() { return 7; }"
    path = library(tmp_path, "nccl", f'extern "C" {{ {text} }}')

    def found() -> tuple[int, list[str]]:
        calls: list[int] = []
        addresses: list[str] = []
        watch_peer_memory(lambda: None, lambda: calls.append(1), addresses.append)
        nccl = ctypes.CDLL(str(path))
        assert calls == []
        nccl.ncclAllReduce.restype = ctypes.c_ubyte
        assert nccl.ncclAllReduce(257) == 1, "the type of the result was set on the function itself"
        assert nccl.ncclAllReduce(3) == 3
        assert nccl.ncclCommDestroy() == 7
        assert addresses == []
        address = ctypes.cast(nccl.ncclAllReduce, ctypes.c_void_p).value
        assert address is not None
        assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(address)(5) == 5, "what C++ would call"
        return len(calls), sorted(set(addresses))

    assert in_child(found) == (2, ["ncclAllReduce"])
