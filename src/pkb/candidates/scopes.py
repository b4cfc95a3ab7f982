"""The functions of a candidate as scopes: what each runs, what it binds, and which of them can run at all."""

import ast
from collections.abc import Iterator
from functools import cached_property

_PLAIN_DECORATORS = frozenset(
    {"jit", "lru_cache", "cache", "no_grad", "inference_mode", "compile", "contextmanager", "property", "staticmethod"}
    | {"classmethod", "autotune", "heuristics", "wraps", "cached_property", "dataclass", "setter", "getter"}
)
MAX_NODES = 150_000
"""What lies beyond is not read: a candidate has a few thousand."""


class PythonScope:
    """A function, or the module: its own nodes, without those of the functions in it."""

    def __init__(self, function: ast.AST | None, outer: "PythonScope | None") -> None:
        self.function = function
        self.outer = outer
        self.nodes: list[ast.AST] = []
        self.rebound: set[str] = set()
        """Names that functions inside may bind anew: `global`, `nonlocal`."""
        self.name: str = getattr(function, "name", "")
        spec = getattr(function, "args", None)
        every = (*spec.posonlyargs, *spec.args, *spec.kwonlyargs) if isinstance(spec, ast.arguments) else ()
        self.parameters = [argument.arg for argument in every]

    @cached_property
    def bound(self) -> frozenset[str]:
        """Names that belong to it."""
        stored = {node.id for node in self.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        shared = {name for node in self.nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
        return frozenset((stored | set(self.parameters)) - shared)

    @cached_property
    def bindings(self) -> dict[str, ast.expr | None]:
        """Name -> expression; None for one that is bound more than once or by something other than a plain assignment."""
        found: dict[str, ast.expr | None] = dict.fromkeys(self.parameters)
        spec = getattr(self.function, "args", None)
        found |= {each.arg: None for each in (getattr(spec, "vararg", None), getattr(spec, "kwarg", None)) if each}
        classes = [node for node in self.nodes if isinstance(node, ast.ClassDef)]
        skipped = {id(part) for node in classes for member in node.body for part in ast.walk(member)}
        for node in self.nodes:
            bound: dict[str, ast.expr | None] = {}
            match node:
                case _ if id(node) in skipped:
                    continue
                case ast.Assign(targets=[ast.Name() as target]) | ast.AnnAssign(target=ast.Name() as target):
                    skipped.add(id(target))
                    bound = {target.id: node.value} if node.value is not None else {}
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                    bound = {name: None}
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    bound = {name: None}
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    bound = {alias.asname or alias.name.partition(".")[0]: None for alias in names}
            found |= {name: None if name in found else value for name, value in bound.items()}
        return found | dict.fromkeys(self.rebound)


def every_scope(tree: ast.Module) -> list[PythonScope]:
    """The module's scope first, then each function's, whether it can run or not."""
    return _scopes(tree, live=False, strict=False, limit=None)


def live_scopes(tree: ast.Module, *, extract: bool) -> list[PythonScope]:
    """The module's scope first, then each function that can run: what is reached from module level and from `solution`.

    Names decide: a function whose name occurs in live code is live. Left out are functions that nobody names, `if False:`,
    the `__main__` block (the judge imports a candidate), and what follows a `return`. Of an extract, a
    file without `solution`, every function counts.
    """
    return _scopes(tree, live=True, strict=not extract, limit=MAX_NODES)


def _scopes(tree: ast.Module, *, live: bool, strict: bool, limit: int | None) -> list[PythonScope]:
    scopes: list[PythonScope] = []
    waiting: dict[str, list[PythonScope]] = {}  # by name: functions that nobody has named yet
    named: set[str] = {"solution"}
    ready = [PythonScope(None, None)]
    size = 0
    while ready and size != limit:
        scope = ready.pop()
        scopes.append(scope)
        for node in _own_nodes(scope, tree, live=live):
            scope.nodes.append(node)
            size += 1
            if size == limit:
                break
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                runs = not strict or node.name in named or _is_called_by_others(node)
                (ready if runs else waiting.setdefault(node.name, [])).append(PythonScope(node, scope))
            elif isinstance(node, ast.Lambda):
                ready.append(PythonScope(node, scope))
            elif isinstance(node, ast.Global | ast.Nonlocal):
                outer = scope.outer
                while outer is not None:
                    outer.rebound.update(node.names)
                    outer = outer.outer
            name = _named(node)
            named.add(name)
            ready += waiting.pop(name, ())
    return scopes


def _own_nodes(scope: PythonScope, tree: ast.Module, *, live: bool) -> Iterator[ast.AST]:
    """Depth first and in order, without recursion; a function's body is a scope of its own."""
    body = getattr(scope.function, "body", tree.body)
    stack: list[ast.AST] = []
    stack += [*_statements(body, live=live)][::-1] if isinstance(body, list) else [body]
    while stack:
        node = stack.pop()
        yield node
        stack += [*_children(node, live=live)][::-1]


def _children(node: ast.AST, *, live: bool) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        yield from getattr(node, "decorator_list", [])
        yield from (*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None))
        return
    truth = _truth(node.test) if live and isinstance(node, ast.If | ast.While) else None
    for name, value in ast.iter_fields(node):
        dead = (name == "body" and truth is False) or (name == "orelse" and truth is True and isinstance(node, ast.If))
        if isinstance(value, list) and not dead:
            statements = name in ("body", "orelse", "finalbody")
            listed = _statements(value, live=live) if statements else value
            yield from (each for each in listed if isinstance(each, ast.AST))
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context | ast.operator):
            yield value


def _statements(statements: list[ast.stmt], *, live: bool) -> Iterator[ast.stmt]:
    for statement in statements:
        yield statement
        if live and isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break):
            return


def _truth(test: ast.expr) -> bool | None:
    """What a condition is for certain."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _truth(operand)
            return None if inner is None else not inner
        case ast.Name(id="TYPE_CHECKING") | ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()]):
            return False
    return None


def _named(node: ast.AST) -> str:
    """What may name a function: a name, an attribute, a string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) and len(node.value) < 100 else ""
    return getattr(node, "id", "") or getattr(node, "attr", "")


def _is_called_by_others(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Python calls `__init__`, torch calls `forward`, and a decorator may register a function anywhere."""
    if (node.name.startswith("__") and node.name.endswith("__")) or node.name in ("forward", "backward"):
        return True
    targets = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    return any(_named(target) not in _PLAIN_DECORATORS for target in targets)
