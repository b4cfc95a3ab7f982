"""By which ways a candidate seems to move data between ranks: read off its text, before it runs (docs/paths.md).

Pointers to other ranks' memory are followed from where they come through Python, into Triton and CUDA kernels, to the
instruction that uses them; TMA and copies on a rank's own memory are no communication.
"""

import ast
from collections.abc import Iterator

from pkb.candidates.constants import UNKNOWN, fold
from pkb.candidates.names import Literal, is_code, under
from pkb.candidates.paths import cuda
from pkb.candidates.paths.cute import cute_uses, is_kernel
from pkb.candidates.paths.known import DIRECT, CudaUse, Kind, PathName, PathUse
from pkb.candidates.paths.python import python_uses
from pkb.candidates.paths.values import GETTERS, KERNEL, TABLES, Held, Values
from pkb.candidates.scopes import PythonScope
from pkb.candidates.source import Source

__all__ = ["PathName", "PathUse", "kernel_paths", "static_paths"]

_KINDS: dict[Held, Kind] = {"peer": "peer", "address": "peer", "peers": "table", "table": "table"}
_KINDS |= {"multicast": "multicast", "local": "local"}
_PEERS = TABLES | GETTERS | {"multicast_ptr", "rendezvous"}


def static_paths(source: Source) -> list[PathUse]:
    """Each way once per line, in the order of the file; `unknown` at CUDA text that could not be read; else one `none`."""
    once = {(use.path, use.line): use for use in reversed(_found(source)[0])}
    uses = sorted(once.values(), key=lambda use: (use.line, use.path))
    return uses or [PathUse("none", 0, "no communication was recognised in the text")]


def kernel_paths(source: Source) -> dict[str, tuple[PathName, ...]]:
    """The ways of each kernel (`__global__` or `@triton.jit`), with the device functions that it calls; none where it only
    computes. Names are the text's, without template arguments and namespaces; what could not be read is missing."""
    return {name: tuple(dict.fromkeys(use.path for use in found)) for name, found in _found(source)[1].items()}


def _found(source: Source) -> tuple[list[PathUse], dict[str, list[PathUse]]]:
    if source.tree is None:
        return [], {}
    values = Values(source, source.tree)
    found, kernels = _in_strings(values)
    # A kernel of CuTe DSL is traced with all that it calls: it does what the file's DSL functions and inline PTX do together.
    inside = {use for uses in kernels.values() for use in uses}
    uses_of_dsl = [use for scope in values.scopes for use in cute_uses(values, scope)]
    traced = [use for use in found if use not in inside] + uses_of_dsl
    found += uses_of_dsl
    for scope in values.scopes:
        uses = [*python_uses(values, scope)]
        found += uses
        if scope.name in values.jits:
            kernels.setdefault(scope.name, []).extend(uses)
        elif is_kernel(values, scope):
            kernels.setdefault(scope.name, []).extend(traced)
    kernels = _with_callees(values, kernels)
    if any(use.path in DIRECT and not use.weak for use in found):  # then weak evidence is told of nothing
        found = [use for use in found if not use.weak]
        kernels = {name: [use for use in uses if not use.weak] for name, uses in kernels.items()}
    return found, kernels


def _in_strings(values: Values) -> tuple[list[PathUse], dict[str, list[PathUse]]]:
    literals = [*_live_code(values)]
    answer = cuda.ask(_question(values, literals)) if literals else cuda.CudaAnswer([], {}, [])
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
        called = {getattr(node.func, "id", "") for node in scope.nodes if isinstance(node, ast.Call)}
        calls.get(scope.name, set()).update(called & values.jits)
    answer = dict(kernels)
    for name in calls:
        reached, waiting = {name}, [name]
        while waiting:
            new = calls[waiting.pop()] - reached
            reached |= new
            waiting += new
        answer[name] = [use for each in sorted(reached) for use in kernels.get(each, ())]
    return answer


def _question(values: Values, literals: list[Literal]) -> cuda.CudaQuestion:
    names: set[str] = set()
    handed: list[tuple[str, tuple[Kind | None, ...]]] = []
    has_peers = False
    for scope in values.scopes:
        for node in scope.nodes:
            if isinstance(node, ast.Attribute):
                names.add(node.attr)
                has_peers |= node.attr in _PEERS
            if isinstance(node, ast.Constant | ast.JoinedStr):
                text = fold(node) or UNKNOWN
                names |= {text} if len(text) <= 200 and text != UNKNOWN else set()
            elif isinstance(node, ast.Name | ast.Attribute):
                name = values.source.names.dotted(node) or ""
                has_peers |= under(name, "pkb.kit") or "symmetric_memory" in name or "rendezvous" in name
            elif isinstance(node, ast.Call):
                for name, arguments in _handed(values, scope, node):
                    handed.append((name, tuple(_KINDS.get(value) for value in arguments)))
    texts = tuple(literal.text for literal in literals)
    return cuda.CudaQuestion(texts, tuple(sorted(names)), tuple(handed), has_peers or values.is_extract)


def _live_code(values: Values) -> Iterator[Literal]:
    """Code strings in live Python; of those that a name is given to at module level, only where the name is used."""
    names, nodes = values.source.names, [node for scope in values.scopes for node in scope.nodes]
    loaded = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)}
    dead: list[ast.AST] = []
    for node in nodes:  # Triton's assembler is read where it is called
        if isinstance(node, ast.Call) and (names.dotted(node.func) or "").endswith("inline_asm_elementwise"):
            dead.append(node)
    for node in () if values.is_extract else values.scopes[0].nodes:
        if isinstance(node, ast.Assign):
            given = {target.id for target in node.targets if isinstance(target, ast.Name)}
            dead += [node.value] if given and not given & loaded else []
    live = {id(node) for node in nodes} - {id(part) for node in dead for part in ast.walk(node)}
    yield from (each for each in names.literals if id(each.node) in live and is_code(each.text))


def _handed(values: Values, scope: PythonScope, node: ast.Call) -> Iterator[tuple[str, list[Held]]]:
    arguments = values.arguments(scope, node)
    called = node.func
    if isinstance(called, ast.Subscript):
        called = called.value
    elif isinstance(called, ast.Attribute) and called.attr == "launch":
        called, arguments = called.value, arguments[2:]
    elif isinstance(called, ast.Attribute):
        yield called.attr, arguments
    kernel = values.of(scope, called)
    if isinstance(kernel, str) and kernel.startswith(KERNEL):
        yield kernel.removeprefix(KERNEL), arguments
