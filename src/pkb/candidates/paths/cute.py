"""Uses in kernels of CuTe DSL: inline PTX, atomics at system scope, the DSL's own helpers for peers and for NVLS."""

import ast
from collections.abc import Iterator

from pkb.candidates.constants import UNKNOWN
from pkb.candidates.names import under
from pkb.candidates.paths.known import Meaning, PathUse, instructions, meanings
from pkb.candidates.paths.values import Values
from pkb.candidates.scopes import PythonScope

_HELPERS = "cutlass.utils.distributed"
_SYSTEM = frozenset({"sys", "SYS"})


def is_kernel(values: Values, scope: PythonScope) -> bool:
    decorators = getattr(scope.function, "decorator_list", [])
    targets = [each.func if isinstance(each, ast.Call) else each for each in decorators]
    return any(values.source.names.dotted(target) == "cutlass.cute.kernel" for target in targets)


def cute_uses(values: Values, scope: PythonScope) -> Iterator[PathUse]:
    for node in scope.nodes:
        if isinstance(node, ast.Call):
            for path, weak in _of_call(values, scope, node):
                yield PathUse(path, node.lineno, values.source.line_text(node.lineno), weak)


def _of_call(values: Values, scope: PythonScope, node: ast.Call) -> Iterator[Meaning]:
    name = values.source.names.dotted(node.func) or ""
    if not under(name, "cutlass"):
        return
    function = name.rpartition(".")[2]
    if under(name, _HELPERS) and function != "ld_bypass":
        yield Meaning("nvls" if function.startswith("multimem") else "sm_load_store", False)
    elif function == "inline_asm":
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        text = values.text(scope, named.get("asm_string", node.args[2] if len(node.args) > 2 else None)) or ""
        for each in instructions(text.replace(UNKNOWN, "x")):
            # What an address operand points to is not followed: only what says so by itself counts.
            yield from (meaning for meaning in meanings(each, lambda _: None, resolved=True) if not meaning.weak)
    elif "atomic" in function or function in ("fence", "load", "store"):
        scopes = {_last(keyword.value) for keyword in node.keywords if keyword.arg in ("scope", "syncscope")}
        if scopes & _SYSTEM:
            yield Meaning("sm_load_store", function == "fence")
    elif function == "from_dlpack" and node.args and values.of(scope, node.args[0]) in ("peer", "peers"):
        yield Meaning("sm_load_store", False)


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return node.attr if isinstance(node, ast.Attribute) else ""
