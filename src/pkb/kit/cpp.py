"""C++ for the cpu platform: compiled to a shared library, called through ctypes."""

import ctypes
import os
import platform
import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from pkb.kit.cache import Recipe, content_key
from pkb.kit.cuda import _plain_name
from pkb.kit.errors import CompilerMissing
from pkb.kit.nvcc import run_compiler
from pkb.kit.options import check_options
from pkb.kit.toolkit import file_identity

_FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC")


@lru_cache
def find_cxx() -> Path | None:
    """The host compiler: `CXX`, g++, c++ or clang++."""
    for name in (os.environ.get("CXX"), "g++", "c++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            return Path(path)
    return None


@lru_cache
def _processor() -> str:
    """What `-march=native` depends on: a library built for another processor would die of an illegal instruction."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {flags}"


def build_cpp(source: str, *, name: str | None = None, options: Sequence[str] = ()) -> ctypes.CDLL:
    """Compile C++ and load it. Declare what you call `extern "C"`, and set `restype` and `argtypes` before you call it.

    Tensors go in as `ctypes.c_void_p(tensor.data_ptr())`. Ranks on a cpu are processes that share memory: use
    `__atomic_load_n(p, __ATOMIC_ACQUIRE)` and `__atomic_store_n(p, v, __ATOMIC_RELEASE)` for signals.
    """
    recipe = library_recipe(source, name=_plain_name(name or "library"), options=tuple(options))
    return ctypes.CDLL(str(recipe.obtain().path))


def library_recipe(source: str, *, name: str, options: tuple[str, ...]) -> Recipe:
    check_options(options, "host", name=name)
    compiler = find_cxx()
    if compiler is None:
        raise CompilerMissing("no C++ compiler here: install g++ or set CXX")
    command = [str(compiler), *_FLAGS]

    def build(scratch: Path, output: Path) -> None:
        (scratch / f"{name}.cpp").write_text(source)
        run_compiler([*command, f"{name}.cpp", "-o", output.name, *options], scratch=scratch, name=name)

    key = content_key("cpp", source, "\0".join((*_FLAGS, *options)), file_identity(compiler), _processor())
    return Recipe(key, ".so", name, build)
