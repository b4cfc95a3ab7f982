"""By which ways a candidate seems to move data between ranks: read off its text and its binary, before it runs.

Each answer carries its evidence: a line of the file. Pointers to other ranks' memory are followed from where they come
(`get_buffer`, `buffer_ptrs`, `kit.buffers`, `T**`) through Python, into Triton and CUDA kernels, to the instruction that
uses them; TMA and copies on a rank's own memory are no communication. What a candidate did is observed while it runs; this
says in advance, without a GPU, what to expect. docs/paths.md has the rules and the limits.
"""

import ast

from pkb.candidates.paths.binary import BinaryPaths, binary_paths, sass_paths
from pkb.candidates.paths.embedded import Embedded, Reader
from pkb.candidates.paths.expressions import is_jit
from pkb.candidates.paths.live import live_scopes
from pkb.candidates.paths.python import python_uses
from pkb.candidates.paths.use import DIRECT, Found, PathName, PathUse, settle
from pkb.candidates.paths.values import Values
from pkb.candidates.source import Source

__all__ = [
    "BinaryPaths",
    "PathName",
    "PathUse",
    "Reader",
    "binary_paths",
    "kernel_paths",
    "sass_paths",
    "static_paths",
    "uses_multicast",
]


def static_paths(source: Source, *, reader: Reader | None = None) -> list[PathUse]:
    """The ways it seems to use, each once per line, in the order of the file; a single `none` where there are none.

    `reader` is for tests: CUDA is read with tree-sitter where it is installed, else by tokens.
    """
    uses = settle(_found(source, reader)[0])
    return uses or [PathUse("none", 0, "no communication was recognised in the text")]


def kernel_paths(source: Source, *, reader: Reader | None = None) -> dict[str, tuple[PathName, ...]]:
    """For each kernel (`__global__` or `@triton.jit`) by name: the ways its body uses, with the device functions it calls.

    Empty for a kernel that only computes. Names are those of the text: template arguments and namespaces are not part.
    """
    everything, kernels = _found(source, reader)
    sure = any(use.path in DIRECT and not use.weak for use in everything)
    return {
        name: tuple(dict.fromkeys(use.path for use in found if not (use.weak and sure)))
        for name, found in kernels.items()
    }


def uses_multicast(uses: list[PathUse]) -> bool:
    return any(use.path == "nvls" for use in uses)


def _found(source: Source, reader: Reader | None) -> tuple[list[Found], dict[str, list[Found]]]:
    if source.tree is None:
        return [], {}
    values = Values(source, live_scopes(source))
    embedded = Embedded(source, values, reader=reader)
    found = embedded.uses()
    kernels = embedded.kernels()
    for scope in values.scopes:
        uses = [*python_uses(values, scope)]
        found += uses
        if is_jit(source, scope):
            kernels.setdefault(scope.name, []).extend(uses)
    return found, _with_callees(values, kernels)


def _with_callees(values: Values, kernels: dict[str, list[Found]]) -> dict[str, list[Found]]:
    """A Triton kernel does what the jitted functions that it calls do."""
    calls = {
        scope.name: {
            node.func.id
            for node in scope.nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and values.is_jit_function(node.func.id)
        }
        for scope in values.scopes
        if values.is_jit_function(scope.name)
    }
    answer = dict(kernels)
    for name in calls:
        reached, waiting = {name}, [name]
        while waiting:
            new = calls.get(waiting.pop(), set()) - reached
            reached |= new
            waiting += new
        answer[name] = [use for each in sorted(reached) for use in kernels.get(each, ())]
    return answer
