"""Whether the Python of a candidate may wait for a value in memory: read from its text, and in doubt it may.

Who polls must look again and again, so a look that no loop can repeat waits for nothing.
"""

import ast
import re

_LOOKS = frozenset({"item", "tolist", "cpu", "numpy", "equal", "is_nonzero", "any", "all", "int", "bool", "float"})
_CONVERTS = frozenset({"int", "bool", "float"})
"""As functions they look at a tensor; as methods they convert it."""
_ENDS_EARLY = frozenset({"any", "all", "next", "takewhile"})

_UNSEEN = re.compile(
    r"from_address|from_buffer|frombuffer|memoryview|array_interface|dlpack|string_at|ctypes\.cast|\.numpy\b"
    r"|\bthreading\b|concurrent\.futures|multiprocessing|\basyncio\b"
)


def looks_unseen(text: str) -> bool:
    """Whether it may look at memory other than by operators of its own thread, which are what is recorded."""
    return _UNSEEN.search(text) is not None


def polls(tree: ast.AST) -> bool:
    return any(map(_may_wait, ast.walk(tree)))


def _may_wait(node: ast.AST) -> bool:
    if isinstance(node, ast.While):
        return True
    if isinstance(node, ast.For | ast.AsyncFor):
        return any(isinstance(part, ast.Break | ast.Return | ast.Raise) for part in ast.walk(node))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):  # it calls itself
        return any(isinstance(part, ast.Call) and _name(part) == node.name for part in ast.walk(node))
    if isinstance(node, ast.Call):
        if _name(node) == "iter" and len(node.args) == 2:
            return True
        generators = [part for part in ast.walk(node) if isinstance(part, ast.GeneratorExp)]
        return _name(node) in _ENDS_EARLY and any(_looks(part) for one in generators for part in ast.walk(one))
    return False


def _looks(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return _name(node) in (_LOOKS - _CONVERTS if isinstance(node.func, ast.Attribute) else _LOOKS)


def _name(call: ast.Call) -> str:
    called = call.func
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
