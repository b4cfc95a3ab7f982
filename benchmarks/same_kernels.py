"""Is a kernel's machine code the same with our torch header and with torch's own? `benchmarks/same_kernels.py DIR`.

No GPU is needed. DIR holds candidates (`*.py`, in any folder below). The sources of their torch extensions are compiled to
device code by either way, with the judge's flags, and for each source the code of its kernels is compared byte by byte, with
what the loader is told of them (registers, parameters, shared memory). Names are left out: a type of torch's has another name
in ours. Exit status 1: code differs, or nothing could be compared.

torch's own headers take some 35 s of CPU however little follows. So N sources stand in one text (`--together`), each in a
namespace of its own, behind the headers that any of them includes; what does not compile like that with our header is left
out, and said.
`--together 1` compiles every source by itself, as it is.
"""

import argparse
import ast
import hashlib
import re
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pkb.candidates.constants import Constants, Dynamic
from pkb.candidates.prebuild import arguments_of, find_calls
from pkb.kit import extension, slim
from pkb.kit.errors import CompileError
from pkb.kit.nvcc import find as find_nvcc
from pkb.kit.nvcc import run_compiler

INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"][^>\"\n]+[>\"]).*$", re.M)
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.M)
PARAMETERS_SECTION = 0x0A
BLAMED = re.compile(r"^candidate_(\d+)\(\d+\): error|at line \d+ of candidate_(\d+)$", re.M)
"""In a compiler's log: where an error is, or what our header was instantiated for."""
RESERVED = ".nv.shared.reserved.0"
"""The compiler's own, one for all kernels of a text."""
COMPARED = (".text.", ".nv.info.", ".nv.shared.", ".nv.constant0.")


@dataclass(frozen=True)
class Kept:
    file: str
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]


def sources_of(path: Path) -> Iterator[Kept]:
    for call in find_calls(ast.parse(path.read_text())):
        if call.kind == "extension":
            try:
                yield Kept(f"{path.parent.name}/{path.name}", str(arguments_of(call, Constants())["cuda_src"]))
            except Dynamic:
                continue


def together(sources: Sequence[Kept]) -> str:
    """One text. A single source stays as it is."""
    if len(sources) == 1:
        return sources[0].text
    includes = dict.fromkeys(name for source in sources for name in INCLUDE.findall(source.text))
    parts = [f"#include {name}\n" for name in includes]
    for number, source in enumerate(sources):
        macros = dict.fromkeys(["TORCH_EXTENSION_NAME", *MACRO.findall(source.text)])
        parts += [
            *(f'#pragma push_macro("{name}")\n' for name in macros),
            f"#undef TORCH_EXTENSION_NAME\n#define TORCH_EXTENSION_NAME {space(number)}\nnamespace {space(number)} {{\n",
            f'#line 1 "{space(number)}"\n{INCLUDE.sub("", source.text)}\n}}\n',
            *(f'#pragma pop_macro("{name}")\n' for name in macros),
        ]
    return "".join(parts)


def space(number: int) -> str:
    return f"candidate_{number:03}"


def device_code(text: str, *, real: bool) -> bytes:
    """Raises `CompileError`."""
    nvcc = find_nvcc()
    if nvcc is None:
        raise SystemExit("no nvcc on this machine")
    headers = [*([] if real else slim.INCLUDE_FLAGS), *extension._system_folders(real=real)]
    flags = [*headers, *extension._compile_flags("candidate", cflags=["-O3"]), "-w"]
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "candidate.cu").write_text(text)
        command = [str(nvcc[0]), "-cubin", "candidate.cu", "-o", "code", *flags]
        run_compiler(command, scratch=Path(scratch), name="candidate")
        return (Path(scratch) / "code").read_bytes()


def sections(cubin: bytes) -> dict[str, bytes]:
    """Those that make up kernels, by name. One without bytes in the file (shared memory) counts by its size."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    rows = [struct.unpack_from("<IIQQQQ", cubin, table + size * n) for n in range(count)]
    names = rows[names_at][4]
    found = {}
    for name, kind, _, _, offset, length in rows:
        start = names + name
        title = cubin[start : cubin.index(b"\0", start)].decode()
        if title.startswith(COMPARED) and title != RESERVED:
            data = f"{length} bytes".encode() if kind == 8 else cubin[offset : offset + length]
            found[title] = without_symbols(data) if title.startswith(".nv.info.") else data
    return found


def without_symbols(info: bytes) -> bytes:
    """A kernel's attributes, each (format, what, length, bytes), but for the number that its parameters' section has in the
    symbol table: other symbols in the file shift it."""
    kept, at = b"", 0
    while at < len(info):
        form, what, length = struct.unpack_from("<BBH", info, at)
        end = at + 4 + (length if form == 4 else 0)
        skipped = 8 if what == PARAMETERS_SECTION else 0
        kept += info[at : at + min(4, skipped)] + info[at + skipped : end]
        at = end
    return kept


def kernels_of(number: int, source: Kept, found: dict[str, bytes], *, alone: bool) -> list[str]:
    """Digests of the sections of this source's kernels, in no order that a name decides."""
    mine = []
    for title, data in found.items():
        name = title.split(".", 3 if title.startswith(".nv") else 2)[-1]
        plain = not name.startswith("_Z") and re.search(rf"\b{re.escape(name)}\b", source.text)
        if alone or plain or f"{len(space(number))}{space(number)}" in name:
            mine.append(f"{title[: len(title) - len(name)]} {hashlib.sha256(data).hexdigest()}")
    return sorted(mine)


def compiling(sources: Sequence[Kept]) -> tuple[list[Kept], bytes, list[Kept]]:
    """Those whose text stands together with our header, their code, and those that had to go."""
    left, gone = list(sources), list[Kept]()
    while left:
        try:
            return left, device_code(together(left), real=False), gone
        except CompileError as error:
            if len(left) == 1:
                break
            bad = {int(found[1] or found[2]) for found in BLAMED.finditer(error.log)}
            if not bad:
                raise
            gone += [source for number, source in enumerate(left) if number in bad]
            left = [source for number, source in enumerate(left) if number not in bad]
    return [], b"", [*gone, *left]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--together", type=int, default=1, metavar="N", help="sources that are compiled as one text")
    parser.add_argument("--every", type=int, default=1, help="a sample: every Nth file")
    given = parser.parse_args()
    files = sorted(given.folder.rglob("*.py"))[:: given.every]
    sources = list({source.digest: source for path in files for source in sources_of(path)}.values())
    same = total = code = 0
    for first in range(0, len(sources), given.together):
        left, ours, gone = compiling(sources[first : first + given.together])
        for source in gone:
            print(f"  {source.file} {source.digest}: not compared, our header alone does not build it here", flush=True)
        if not left:
            continue
        own, real = sections(ours), sections(device_code(together(left), real=True))
        for number, source in enumerate(left):
            pair = [kernels_of(number, source, found, alone=len(left) == 1) for found in (own, real)]
            kernels = sum(row.startswith(".text.") for row in pair[0])
            total += 1
            same += bool(kernels) and pair[0] == pair[1]
            code += kernels
            print(
                f"  {source.file} {source.digest}: {kernels} kernels, {'same' if pair[0] == pair[1] else 'DIFFERENT'}",
                flush=True,
            )
    print(f"the same device code both ways: {same} of {total} sources, {code} kernels")
    return 0 if total and same == total else 1


if __name__ == "__main__":
    sys.exit(main())
