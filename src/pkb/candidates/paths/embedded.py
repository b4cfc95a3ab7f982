"""CUDA, C++ and PTX in a candidate's strings: which of them its live Python can use, and what it hands to their functions."""

import ast
from collections.abc import Iterator

from pkb.candidates.constants import UNKNOWN, fold
from pkb.candidates.names import Literal, is_code, under
from pkb.candidates.paths.cuda import CudaQuestion
from pkb.candidates.paths.use import Kind
from pkb.candidates.paths.values import GETTERS, KERNEL, TABLES, Held, Values
from pkb.candidates.scopes import PythonScope
from pkb.candidates.source import has_solution

_KINDS: dict[Held, Kind] = {
    "peer": "peer", "address": "peer", "peers": "table", "table": "table", "multicast": "multicast", "local": "local",
}  # fmt: skip
_PEERS = TABLES | GETTERS | {"multicast_ptr", "rendezvous"}


def question(values: Values, literals: list[Literal]) -> CudaQuestion:
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
    has_peers |= values.source.tree is None or not has_solution(values.source.tree)
    texts = tuple(literal.text for literal in literals)
    return CudaQuestion(texts, tuple(sorted(names)), tuple(handed), has_peers)


def live_code(values: Values) -> Iterator[Literal]:
    """Code strings in live Python; of those that a name is given to at module level, only where the name is used."""
    nodes = [node for scope in values.scopes for node in scope.nodes]
    loaded = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)}
    strict = values.source.tree is not None and has_solution(values.source.tree)
    dead: list[ast.expr] = [  # Triton's assembler is read where it is called
        node for node in nodes
        if isinstance(node, ast.Call) and (values.source.names.dotted(node.func) or "").endswith("inline_asm_elementwise")
    ]  # fmt: skip
    for node in values.scopes[0].nodes if strict else ():
        if isinstance(node, ast.Assign):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            dead += [node.value] if names and not names & loaded else []
    live = {id(node) for node in nodes} - {id(part) for node in dead for part in ast.walk(node)}
    yield from (each for each in values.source.names.literals if id(each.node) in live and is_code(each.text))


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
