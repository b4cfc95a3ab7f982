"""By which ways a candidate seems to move data between ranks: read off its text, before it runs.

Each answer carries its evidence: a line of the file. Pointers to other ranks' memory are followed from where they come
(`get_buffer`, `buffer_ptrs`, `kit.buffers`, `T**`) through Python, into Triton and CUDA kernels, to the instruction that
uses them; TMA and copies on a rank's own memory are no communication. What a candidate did is observed while it runs; this
says in advance, without a GPU, what to expect. docs/paths.md has the rules and the limits.
"""

import ast

from pkb.candidates.names import Literal
from pkb.candidates.paths import cuda, embedded
from pkb.candidates.paths.python import python_uses
from pkb.candidates.paths.use import DIRECT, CudaUse, PathName, PathUse, settle
from pkb.candidates.paths.values import Values
from pkb.candidates.scopes import live_scopes
from pkb.candidates.source import Source, has_solution

__all__ = ["PathName", "PathUse", "kernel_paths", "static_paths"]


def static_paths(source: Source) -> list[PathUse]:
    """The ways it seems to use, each once per line, in the order of the file; a single `none` where there are none.

    `unknown` stands at the line of CUDA text that could not be read.
    """
    uses = settle(_found(source)[0])
    return uses or [PathUse("none", 0, "no communication was recognised in the text")]


def kernel_paths(source: Source) -> dict[str, tuple[PathName, ...]]:
    """For each kernel (`__global__` or `@triton.jit`) by name: the ways its body uses, with the device functions it calls.

    Empty for a kernel that only computes. Names are those of the text: template arguments and namespaces are not part.
    Kernels in CUDA text that could not be read are missing.
    """
    everything, kernels = _found(source)
    sure = any(use.path in DIRECT and not use.weak for use in everything)
    return {
        name: tuple(dict.fromkeys(use.path for use in found if not (use.weak and sure)))
        for name, found in kernels.items()
    }


def _found(source: Source) -> tuple[list[PathUse], dict[str, list[PathUse]]]:
    if source.tree is None:
        return [], {}
    values = Values(source, live_scopes(source.tree, extract=not has_solution(source.tree)))
    found, kernels = _in_strings(values)
    for scope in values.scopes:
        uses = [*python_uses(values, scope)]
        found += uses
        if scope.name in values.jits:
            kernels.setdefault(scope.name, []).extend(uses)
    return found, _with_callees(values, kernels)


def _in_strings(values: Values) -> tuple[list[PathUse], dict[str, list[PathUse]]]:
    literals = [*embedded.live_code(values)]
    if not literals:
        return [], {}
    answer = cuda.ask(embedded.question(values, literals))
    if isinstance(answer, str):
        return [_unknown(literal, answer) for literal in literals], {}

    def at_line(use: CudaUse) -> PathUse:
        literal = literals[use.owner]
        return PathUse(use.path, literal.line_of(use.at), literal.code_at(use.at), use.weak)

    unread = [_unknown(literals[owner], "the grammar does not understand it") for owner in answer.unread]
    kernels = {name: [at_line(use) for use in uses] for name, uses in answer.kernels.items()}
    return [*(at_line(use) for use in answer.uses), *unread], kernels


def _unknown(literal: Literal, why: str) -> PathUse:
    return PathUse("unknown", literal.line, f"code that was not read: {why}")


def _with_callees(values: Values, kernels: dict[str, list[PathUse]]) -> dict[str, list[PathUse]]:
    """A Triton kernel does what the jitted functions that it calls do."""
    calls: dict[str, set[str]] = {name: set() for name in values.jits}
    for scope in values.scopes:
        if scope.name in calls:
            called = {getattr(node.func, "id", "") for node in scope.nodes if isinstance(node, ast.Call)}
            calls[scope.name] |= called & values.jits
    answer = dict(kernels)
    for name in calls:
        reached, waiting = {name}, [name]
        while waiting:
            new = calls[waiting.pop()] - reached
            reached |= new
            waiting += new
        answer[name] = [use for each in sorted(reached) for use in kernels.get(each, ())]
    return answer
