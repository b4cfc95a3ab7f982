"""Whose fault it is that a source cannot be built for a CPU: the candidate's, or that of the emulator's headers.

An error is held against a candidate only where no header of ours can be its cause: g++ says so for what is wrong in any C++ and
for rules of CUDA and torch that the headers follow to the letter; nvcc, where it is installed, for what lies outside of torch.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from pkb.kit import torch_facts
from pkb.kit.errors import CompileError
from pkb.kit.nvcc import find as find_nvcc
from pkb.kit.nvcc import run_compiler

BY_GXX = "g++ cannot build it with the emulator's headers"
_NUMBER = r"(?:const |volatile )*(?:(?:un)?signed |long |short )*(?:int|char|float|double|long|short|bool)"
_ANY_CPP = (
    r"expected |stray |redefinition of|redeclaration of|conflicting declaration|missing terminating|unterminated |#error|"
    r"lvalue required|too (few|many) arguments to function|jump to label|break statement not within"
)
# Pointers to numbers do not convert; torch forbids conversions of 16-bit floats; std::min takes what min<T> is given, and
# CUDA's own min is no template; at::cuda comes with headers of that name only; iterators that cub has lost with CUDA 13.
_RULES = (
    rf"invalid conversion from ‘{_NUMBER}\*’ to ‘{_NUMBER}\*’|"
    rf"invalid cast from type ‘__(nv_bfloat16|half)’ to type ‘{_NUMBER}’|"
    r"could not convert ‘.*’ from ‘(const )?pkb_slim::BFloat16’ to ‘__nv_bfloat16’|"
    r"‘CUDART_\w+’ was not declared|‘at::cuda’ has not been declared|no matching function for call to ‘(min|max)<[\w ]+>\(|"
    r"‘(Counting|Constant|Transform)InputIterator’ (is not a member of|in namespace) ‘cub’"
)
_BY_GXX = re.compile(rf"error: (?:{_ANY_CPP}|{_RULES})")
_NO_ELEMENT = re.compile(r"incomplete type ‘pkb_slim::ScalarOf<([\w ]+)>’")
_NO_HEADER = re.compile(r"fatal error: ((?:ATen/core|c10/core|c10/util|torch)/[\w/]+\.h): No such file")
_BY_NVCC = re.compile(
    r"error: (?:argument of type .* is incompatible with|no suitable (?:user-defined )?conversion|"
    r"no instance of overloaded function|identifier \"(?!AT_|TORCH_|C10_|PYBIND)\w+\" is undefined|"
    r"expected an? |.* is incompatible with previous|"
    r"\S+ has already been declared|namespace \"cub\" has no member|a value of type .* cannot be |no operator .* matches these|"
    r"more than one instance of overloaded function \"(?:min|max|abs|pow)\")"
)
_OURS = re.compile(r"pkb_slim(?!::BFloat16\" to \"__nv_bfloat16\")")


def candidates_error(error: CompileError, *, name: str) -> CompileError | None:
    """What to hold against the candidate of an error that g++ has found, or None where the emulator may be at fault."""
    said = error.first_error
    if error.line is not None and _BY_GXX.search(said):
        return error
    if found := _NO_ELEMENT.search(error.log):
        text = f"{name}.cu: error: torch defines no data_ptr<{found[1]}>: the extension cannot be loaded"
        return CompileError(text, name=name)
    if (found := _NO_HEADER.search(said)) and not any(
        (Path(folder) / found[1]).exists() for folder in torch_facts.include_folders()
    ):
        return error
    return None


def nvcc_error(source: str, *, name: str, flags: Sequence[str], scratch: Path) -> CompileError | None:
    """What nvcc says of an extension, if it says something that torch's headers have no part in."""
    found = find_nvcc()
    if found is None:
        return None
    (scratch / f"{name}.cu").write_text(source)
    try:
        run_compiler([str(found[0]), "-c", f"{name}.cu", "-o", "checked.o", *flags], scratch=scratch, name=name)
    except CompileError as error:
        return error if certain_by_nvcc(error) else None
    except (RuntimeError, OSError):  # killed, or not to be started here: it has said nothing
        return None
    return None


def certain_by_nvcc(error: CompileError) -> bool:
    if error.line is None or not _BY_NVCC.search(error.first_error):
        return False
    _, _, behind = error.log.partition(error.first_error)
    about = re.split(r"\n\S+\(\d+\): ", behind)[0]  # notes on this error, before the next
    return not _OURS.search(error.first_error + about)


def not_emulated(first_error: str) -> str:
    """What the emulator's headers lack, its place first, and what could be done about it."""
    what = BY_GXX
    if "ensorMap" in first_error:
        what = "tensor maps are not emulated, bulk copies of one dimension are"
    elif found := re.search(r"fatal error: (\S+): No such file", first_error):
        what = f"there is no <{found[1]}> for the emulated GPU"
    return f"{first_error[:300]} ({what}, see docs/cuda-on-cpu.md: write it in another way, or judge it on a GPU)"
