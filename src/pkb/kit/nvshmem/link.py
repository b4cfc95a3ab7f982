"""CUDA C++ with NVSHMEM's device functions to one cubin: nvcc compiles, nvlink adds the device library."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pkb.kit import nvcc
from pkb.kit.errors import CompilerMissing
from pkb.kit.nvshmem.found import NvshmemFound, found
from pkb.kit.toolkit import file_identity

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]nvshmemx?\.h[>"]', re.M)


def is_used(source: str) -> bool:
    """Whether a source includes NVSHMEM's headers."""
    return _INCLUDE.search(source) is not None


def identity() -> str:
    """For the cache's key. Raises `CompilerMissing` where NVSHMEM or nvcc is not installed."""
    where, compiler = _installed()
    return f"nvshmem {where.version} {file_identity(where.device_library)} {compiler}"


def _installed() -> tuple[NvshmemFound, str]:
    where, by_nvcc = found(), nvcc.find()
    if isinstance(where, str):
        raise CompilerMissing(where)
    if by_nvcc is None:
        raise CompilerMissing("NVSHMEM's device library is linked by nvcc, which is not here: install the CUDA toolkit")
    return where, by_nvcc[1]


def link_cubin(
    source: str, *, name: str, arch: str, scratch: Path, options: Sequence[str], headers: Mapping[str, str]
) -> bytes:
    """Compile and link in the folder `scratch`."""
    where, _ = _installed()
    compiler = str(nvcc.find()[0])  # type: ignore[index]
    for header, text in headers.items():
        (scratch / header).write_text(text)
    (scratch / f"{name}.cu").write_text(source)
    standard = [] if any(option.startswith(("-std", "--std")) for option in options) else ["-std=c++17"]
    # Of the device's side only: the host's would double the time.
    command = [compiler, "-cubin", "-rdc=true", f"-arch={arch}", *standard, *options, "-I.", f"-I{where.include}"]
    nvcc.run_compiler([*command, "-o", "part.cubin", f"{name}.cu"], scratch=scratch, name=name)
    linker, library = str(Path(compiler).with_name("nvlink")), (f"-L{where.libraries}", "-lnvshmem_device")
    nvcc.run_compiler([linker, f"-arch={arch}", "part.cubin", *library, "-o", "out.cubin"], scratch=scratch, name=name)
    return (scratch / "out.cubin").read_bytes()
