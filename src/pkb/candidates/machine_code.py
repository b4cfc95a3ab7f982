"""Which ways a compiled kernel uses, from its disassembly: the last word on inline PTX, templates and headers.

Needs `cuobjdump` or `nvdisasm`: from the CUDA toolkit, or as Triton brings them. SASS shows which instructions there are,
not what they point to: TMA may serve the GPU's own memory, and a store to a multicast address (`multimem.st`,
`multimem.red`) is an ordinary system-scope store here. Only the reducing load (`multimem.ld_reduce`, LDGMC) shows NVLS.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pkb.candidates.paths.known import PathName
from pkb.candidates.walled_build import BuildStopped, disassembled
from pkb.kit.errors import CompileError
from pkb.kit.toolkit import usual_homes

_MAX_OUTPUT = 256 << 20

# `/*00a0*/  @P0 UBLKCP.S.G [UR4], [UR8], UR6 ;`, as cuobjdump -sass and nvdisasm both print it
_LINE = re.compile(
    r"/\*[0-9a-f]{4,8}\*/\s{1,200}(?:@!?U?P\w{1,4}\s{1,8})?([A-Z][A-Z0-9_]{1,24}(?:\.[\w:]{1,24}){0,12})\b"
)
_FUNCTION = re.compile(r"Function : (\S{1,400})|\.text\.([^\s,\"]{1,400}):")
_TMA = frozenset({"UBLKCP", "UBLKRED", "UTMALDG", "UTMASTG", "UTMAREDG", "UTMALST"})
_REDUCING_LOAD = frozenset({"LDGMC"})
_MEMORY = frozenset({"LD", "LDG", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG"})


@dataclass(frozen=True)
class SassUse:
    """One instruction as evidence."""

    path: PathName
    kernel: str
    """As the binary names it: mangled, where it is C++."""
    line: int
    """1-based, of the disassembly."""
    text: str


@dataclass(frozen=True)
class BinaryPaths:
    uses: tuple[SassUse, ...] | None
    """None where the binary could not be read; `problem` says why."""
    problem: str = ""


def binary_paths(path: Path, *, timeout_s: float = 60.0) -> BinaryPaths:
    """Disassembles a cubin, or the device code in a shared library, and reads it."""
    if not path.is_file():
        return BinaryPaths(None, f"{path} is no file")
    tool = _tool(path)
    if tool is None:
        return BinaryPaths(
            None, "neither cuobjdump nor nvdisasm was found: install the CUDA toolkit, or Triton, which brings both"
        )
    file = str(path.resolve())
    command = [str(tool), "-sass", file] if tool.name == "cuobjdump" else [str(tool), file]
    try:
        printed = disassembled(command, path, limit=_MAX_OUTPUT, timeout_s=timeout_s)
    except subprocess.TimeoutExpired:
        return BinaryPaths(None, f"{tool.name} took longer than {timeout_s:g} s on {path}")
    except BuildStopped as error:
        return BinaryPaths(None, f"{tool} cannot be run: {error}")
    except CompileError as error:
        return BinaryPaths(None, f"{tool.name} failed on {path}: {error.log.splitlines()[-1][:300]}")
    return BinaryPaths(tuple(sass_paths(printed.decode(errors="replace").splitlines())))


def sass_paths(lines: Iterable[str]) -> list[SassUse]:
    """What disassembled instructions say about communication: each kind of instruction once a kernel."""
    kernel = ""
    found: dict[tuple[str, str], SassUse] = {}
    for number, line in enumerate(lines, start=1):
        named = _FUNCTION.search(line[:500])
        if named:
            kernel = named.group(1) or named.group(2)
            continue
        match = _LINE.search(line[:500])
        path = _path(match.group(1)) if match else None
        if match is not None and path is not None:
            use = SassUse(path, kernel, number, line[match.start(1) : 500].split(";")[0].strip())
            found.setdefault((kernel, match.group(1)), use)
    return list(found.values())


def _path(mnemonic: str) -> PathName | None:
    name, _, modifiers = mnemonic.partition(".")
    if name in _TMA:
        return "tma"
    if name in _REDUCING_LOAD:
        return "nvls"
    system = "SYS" in modifiers.split(".")
    return "sm_load_store" if name in _MEMORY and system else None


def _tool(path: Path) -> Path | None:
    """cuobjdump reads everything; nvdisasm only a bare cubin."""
    cubin = path.suffix in (".cubin", "")
    for name in ("cuobjdump", "nvdisasm") if cubin else ("cuobjdump",):
        for folder in _folders():
            if os.access(folder / name, os.X_OK):
                return folder / name
        on_path = shutil.which(name)
        if on_path:
            return Path(on_path)
    return None


def _folders() -> list[Path]:
    spec = importlib.util.find_spec("triton")
    brought = [Path(spec.origin).parent / "backends" / "nvidia" / "bin"] if spec is not None and spec.origin else []
    return [*(home / "bin" for home in usual_homes()), *brought]
