"""Which Python of a candidate can run: what is reached from module level and from `solution`.

Names decide: a function whose name occurs in live code is live. Left out are functions that nobody names, `if False:`,
the `__main__` block (the judge imports a candidate), and what follows a `return`. Without `solution` it is an extract, and
every function counts.
"""

import ast
from collections.abc import Iterator
from functools import cached_property

from pkb.candidates.source import Source, has_solution

FunctionDef = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_PLAIN_DECORATORS = frozenset(
    {"jit", "lru_cache", "cache", "no_grad", "inference_mode", "compile", "contextmanager", "property", "staticmethod"}
    | {"classmethod", "autotune", "heuristics", "wraps", "cached_property", "dataclass"}
)

MAX_NODES = 150_000
"""What lies beyond is not read: a candidate has a few thousand, and two MiB of text could hold millions."""


class Scope:
    """A function, or the module: its own nodes, without those of the functions in it."""

    def __init__(self, function: FunctionDef | None, outer: "Scope | None") -> None:
        self.function = function
        self.outer = outer
        self.nodes: list[ast.AST] = []

    @property
    def name(self) -> str:
        return getattr(self.function, "name", "")

    @cached_property
    def bound(self) -> frozenset[str]:
        """Names that belong to it."""
        stored = {node.id for node in self.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        shared = {name for node in self.nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
        return frozenset((stored | set(self.parameters)) - shared)

    @cached_property
    def parameters(self) -> list[str]:
        if self.function is None:
            return []
        spec = self.function.args
        return [argument.arg for argument in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]


def live_scopes(source: Source) -> list[Scope]:
    """The module's scope first, then each function that can run, once."""
    if source.tree is None:
        return []
    scopes: list[Scope] = []
    waiting: dict[str, list[Scope]] = {}  # by name: functions that nobody has named yet
    named: set[str] = set()
    strict = has_solution(source.tree)
    module = Scope(None, None)
    ready = [module]
    size = 0
    while ready and size < MAX_NODES:
        scope = ready.pop()
        scopes.append(scope)
        for node in _own_nodes(scope, source.tree):
            scope.nodes.append(node)
            size += 1
            if size == MAX_NODES:
                break
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = Scope(node, scope)
                if not strict or node.name in named or node.name == "solution" or _is_called_by_others(node):
                    ready.append(inner)
                else:
                    waiting.setdefault(node.name, []).append(inner)
            elif isinstance(node, ast.Lambda):
                ready.append(Scope(node, scope))
            for name in _names(node):
                named.add(name)
                ready += waiting.pop(name, ())
    return scopes


def _own_nodes(scope: Scope, tree: ast.Module) -> Iterator[ast.AST]:
    """Depth first and in order, without recursion; a function's body is a scope of its own."""
    function = scope.function
    body = tree.body if function is None else function.body
    stack: list[ast.AST] = []
    stack += [*_reachable(body)][::-1] if isinstance(body, list) else [body]
    while stack:
        node = stack.pop()
        yield node
        stack += [*_children(node)][::-1]


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        yield from getattr(node, "decorator_list", [])
        yield from (*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None))
        return
    if isinstance(node, ast.If | ast.While):
        truth = _truth(node.test)
        yield node.test
        yield from _reachable(node.body) if truth is not False else ()
        yield from _reachable(node.orelse) if truth is not True or isinstance(node, ast.While) else ()
        return
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            statements = name in ("body", "orelse", "finalbody")
            yield from _reachable(value) if statements else (each for each in value if isinstance(each, ast.AST))
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context | ast.operator):
            yield value


def _reachable(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in statements:
        yield statement
        if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break):
            return


def _truth(test: ast.expr) -> bool | None:
    """What a condition is for certain."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _truth(test.operand)
        return None if inner is None else not inner
    name = test.left if isinstance(test, ast.Compare) else test
    if isinstance(name, ast.Name) and name.id in ("__name__", "TYPE_CHECKING"):
        return False if not isinstance(test, ast.Compare) or isinstance(test.ops[0], ast.Eq) else None
    return None


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 100:
        yield node.value


def _is_called_by_others(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Python calls `__init__`, torch calls `forward`, and a decorator may register a function anywhere."""
    if (node.name.startswith("__") and node.name.endswith("__")) or node.name in ("forward", "backward"):
        return True
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        if name not in _PLAIN_DECORATORS and name not in ("setter", "getter"):
            return True
    return False
