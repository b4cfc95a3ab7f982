"""What a candidate is written in, and what a platform must have to run it. Read off the text, before anything is
built."""

import ast
from collections.abc import Iterator
from typing import Literal

from pkb.candidates.constants import fold
from pkb.candidates.libraries import certain_imports, used_by
from pkb.candidates.names import under
from pkb.candidates.source import Source

Backend = Literal["cuda", "cute", "triton", "cpp", "torch"]

_CUDA_BUILDERS = (
    "utils.cuda_helpers.compile_cuda_extension", "pkb.kit.compile", "pkb.kit.cuda.compile", "pkb.kit.extension",
)  # fmt: skip
_CUDA_LIBRARIES = ("cupy", "cuda.core", "cuda.bindings", "pycuda", "numba.cuda")
_CPP_BUILDERS = ("pkb.kit.build_cpp", "pkb.kit.cpp")
_TORCH_BUILDERS = ("torch.utils.cpp_extension.load_inline", "torch.utils.cpp_extension.load")
_INLINE_PTX = ("triton.language.inline_asm_elementwise",)


def backend(source: Source) -> Backend:
    """The lowest level it reaches down to: a candidate with CUDA and Triton kernels is a CUDA candidate. CuTe DSL takes its
    streams from CUDA's bindings, so it comes before what merely calls those."""
    if any(under(name, "cutlass") for name, _ in source.names.imports):
        return "cute"
    if _uses_cuda(source):
        return "cuda"
    if any(under(name, "triton") for name, _ in source.names.imports):
        return "triton"
    return "cpp" if _uses_cpp(source) else "torch"


def needs(source: Source) -> frozenset[str]:
    """Capabilities without which it cannot run, among `cuda`, `gpu` (CUDA through a library that an emulated one cannot serve),
    `triton`, `cpp`, and names of `LIBRARIES`.

    A candidate that asks whether there is a GPU has another way, so its CUDA (and the C++ that may be the other way)
    is not a need. Multicast is never listed: whether there is a fallback cannot be told from text.
    """
    found: set[str] = set()
    guarded = _asks_for_gpu(source)
    cuda = _uses_cuda(source) or any(under(name, *_INLINE_PTX) for name, _ in source.names.calls)
    if cuda and not guarded:
        found |= {"cuda", "gpu"} if _uses_libraries(source) else {"cuda"}
    if _uses_cpp(source) and not (cuda and guarded):
        found.add("cpp")
    # The interpreter runs Triton on a CPU, so a test for a GPU changes nothing.
    if any(under(module, "triton") for module in certain_imports(source)):
        found.add("triton")
    for library in used_by(source) if not guarded else ():
        found |= {library.name, "cuda", "gpu"}
    return frozenset(found)


def _uses_libraries(source: Source) -> bool:
    return any(under(name, *_CUDA_LIBRARIES) for name, _ in source.names.calls)


def _uses_cuda(source: Source) -> bool:
    for name, call in source.names.calls:
        if under(name, *_CUDA_BUILDERS, *_CUDA_LIBRARIES) or (
            under(name, *_TORCH_BUILDERS) and _has_cuda_sources(call)
        ):
            return True
    return any("__global__" in literal.code for literal in source.names.literals)


def _uses_cpp(source: Source) -> bool:
    return any(
        under(name, *_CPP_BUILDERS) or (under(name, *_TORCH_BUILDERS) and not _has_cuda_sources(call))
        for name, call in source.names.calls
    )


def _has_cuda_sources(call: ast.Call) -> bool:
    for keyword in call.keywords:
        constant = keyword.value.value if isinstance(keyword.value, ast.Constant) else ...
        if keyword.arg == "with_cuda" and constant is True:
            return True
        if keyword.arg == "cuda_sources" and constant is not None and constant != "":
            return not (isinstance(keyword.value, ast.List | ast.Tuple) and not keyword.value.elts)
    if any((fold(node) or "").endswith(".cu") for node in ast.walk(call)):
        return True
    # load_inline(name, cpp_sources, cuda_sources, ...)
    return isinstance(call.func, ast.Attribute | ast.Name) and _tail(call.func) == "load_inline" and len(call.args) >= 3


def _tail(node: ast.Attribute | ast.Name) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


def _asks_for_gpu(source: Source) -> bool:
    """Does it test for a GPU and go on without one? `assert x.is_cuda` and `if not x.is_cuda: raise` only insist
    on it."""
    insisting: set[int] = set()
    for node in source.nodes:
        if isinstance(node, ast.Assert):
            insisting |= {id(part) for part in ast.walk(node)}
        elif isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], ast.Raise):
            insisting |= {id(part) for part in ast.walk(node.test)}
    return any(id(node) not in insisting for node in _gpu_tests(source))


def _gpu_tests(source: Source) -> Iterator[ast.AST]:
    for node in source.nodes:
        if not isinstance(node, ast.Attribute):
            continue
        of_device = isinstance(node.value, ast.Attribute | ast.Name) and _tail(node.value).endswith("device")
        if (
            node.attr == "is_cuda"
            or (node.attr == "type" and of_device)
            or source.names.dotted(node) == "torch.cuda.is_available"
        ):
            yield node
