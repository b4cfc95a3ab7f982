"""CUDA C++ to cubin in the process, by NVRTC through ctypes: 0.1 s for a small kernel, no GPU and no nvcc needed."""

import contextlib
import ctypes
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from pkb.kit.errors import CompileError
from pkb.kit.messages import own_words
from pkb.kit.toolkit import file_identity, include_dirs, usual_homes, wheel_roots

_SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_INTEGERS = "\n".join(
    f"typedef {kind} int{bits}_t; typedef unsigned {kind} uint{bits}_t;"
    for bits, kind in ((16, "short"), (32, "int"), (64, "long long"))  # libcu++ says the same
)
# NVRTC has no host headers. Kernels include these few out of habit and need next to nothing of them, so they get that
# much; printf, math functions, size_t and the vector types are built in.
_HOST_HEADERS: Mapping[str, str] = {
    **dict.fromkeys(
        ("stdint.h", "cstdint"),
        f"#pragma once\ntypedef signed char int8_t; typedef unsigned char uint8_t;\n{_INTEGERS}\n"
        "typedef long long intptr_t; typedef unsigned long long uintptr_t;\n",
    ),
    **dict.fromkeys(
        ("stddef.h", "cstddef", "stdio.h", "cstdio", "math.h", "cmath", "stdlib.h", "cstdlib", "assert.h", "cassert"),
        "#pragma once\n",
    ),
    # The real one declares host functions, which NVRTC refuses. A kernel wants this type of it, for TMA.
    "cuda.h": "#pragma once\nstruct alignas(64) CUtensorMap { unsigned long long opaque[16]; };\n",
}


def _candidates() -> Iterator[str]:
    folders = [*(root / "lib" for root in wheel_roots()), *(home / "lib64" for home in usual_homes())]
    yield from (str(folder / soname) for folder in folders for soname in _SONAMES if (folder / soname).is_file())
    yield from _SONAMES


@lru_cache
def load() -> tuple[ctypes.CDLL, str] | None:
    """The library and a name for the cache key, or None where there is none that loads."""
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        if library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) != 0:
            continue
        if path.startswith("/"):
            # It looks for this one by name alone, and finds it only where the loader would, or where it is loaded already.
            for builtins in Path(path).parent.glob(f"libnvrtc-builtins.so.{major.value}.{minor.value}*"):
                with contextlib.suppress(OSError):
                    ctypes.CDLL(str(builtins))
        size = file_identity(Path(path)) if path.startswith("/") else ""
        return library, f"nvrtc {major.value}.{minor.value} {size}"
    return None


def compile_cubin(
    source: str, *, name: str, arch: str, options: Sequence[str] = (), headers: Mapping[str, str] | None = None
) -> bytes:
    """Compile to machine code for `arch`. `headers` are texts that `#include` finds by name before any file."""
    loaded = load()
    if loaded is None:
        raise RuntimeError("NVRTC is not on this machine")
    library, _ = loaded
    texts = {**_HOST_HEADERS, **(headers or {})}
    count = len(texts)
    program = ctypes.c_void_p()
    status = library.nvrtcCreateProgram(
        ctypes.byref(program),
        source.encode(),
        f"{name}.cu".encode(),
        count,
        (ctypes.c_char_p * count)(*(text.encode() for text in texts.values())),
        (ctypes.c_char_p * count)(*(header.encode() for header in texts)),
    )
    if status != 0:
        raise RuntimeError(f"nvrtcCreateProgram: {library.nvrtcGetErrorString(status).decode()}")
    try:
        given = [f"--gpu-architecture={arch}", *options, *(f"--include-path={folder}" for folder in include_dirs())]
        # Some versions take a generic lambda in a kernel for a host function, which nvcc does not.
        given.append("--device-as-default-execution-space")
        if not any(option.startswith(("-std", "--std")) for option in options):
            given.append("--std=c++17")
        flags = (ctypes.c_char_p * len(given))(*(option.encode() for option in given))
        status = library.nvrtcCompileProgram(program, len(given), flags)
        if status != 0:
            log = _text(library, program, "nvrtcGetProgramLog").strip("\n")
            said = library.nvrtcGetErrorString(status).decode()
            own = (f"{name}.cu",)
            raise CompileError(own_words(log, own) or f"nvrtc error: {said}", name=name, own_files=own)
        return _bytes(library, program, "nvrtcGetCUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _bytes(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    if library[f"{what}Size"](program, ctypes.byref(size)) != 0:
        raise RuntimeError(f"{what}Size failed")
    buffer = ctypes.create_string_buffer(size.value)
    if library[what](program, buffer) != 0:
        raise RuntimeError(f"{what} failed")
    return buffer.raw


def _text(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> str:
    return _bytes(library, program, what).rstrip(b"\0").decode(errors="replace")
