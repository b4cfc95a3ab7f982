"""Collectives of NCCL or NVSHMEM that a candidate's Python asks for by a way on which no call is counted while it runs.

`library.ncclAllReduce` of ctypes is counted by the rank, call by call, and needs no reading. A prototype that is given a pair
of name and library, `dlsym`, and cffi pass it by.
"""

import ast
from collections.abc import Iterator

from pkb.candidates.constants import fold
from pkb.candidates.names import under
from pkb.candidates.source import Source
from pkb.types.protocol.limits import is_host_collective


def unwatched_collectives(source: Source) -> list[tuple[int, str]]:
    """Lines and functions, each function once. Comments and other strings do not count, nor names made at run time."""
    by_cffi = any(under(module, "cffi", "_cffi_backend") for module, _ in source.names.imports)
    found: dict[str, int] = {}
    for node in source.nodes:
        for name in _asked_for(node, by_cffi=by_cffi):
            if is_host_collective(name):
                found.setdefault(name, getattr(node, "lineno", 0))
    return sorted((line, name) for name, line in found.items())


def _asked_for(node: ast.AST, *, by_cffi: bool) -> Iterator[str]:
    match node:
        case ast.Attribute(attr=name, ctx=ast.Load()) if by_cffi:
            yield name
        case ast.Call(func=ast.Name(id="getattr"), args=[_, name, *_]) if by_cffi:
            yield fold(name) or ""
        case ast.Call(
            func=ast.Name() | ast.Call() | ast.Attribute(attr="_FuncPtr"),
            args=[ast.Tuple(elts=[name, ast.Name() | ast.Attribute() | ast.Call()]), *_],
        ):  # not `table.append(("name", types))`
            yield _text(name)
        case ast.Call(func=ast.Name(id="dlsym") | ast.Attribute(attr="dlsym"), args=[_, name, *_]):
            yield _text(name)


def _text(node: ast.expr) -> str:
    """ctypes takes names as text and as bytes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
        return node.value.decode(errors="replace")
    return fold(node) or ""
