"""What a candidate's constants are worth, found by reading its syntax tree: nothing of the candidate is run.

Sources for compilers are usually string constants, sometimes put together by `+`, f-strings, `.replace` or `.format`.
That much is evaluated here; whatever else comes is `Dynamic`, with the reason.
"""

import ast
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

_LIMIT = 4 << 20
"""Bytes and items an intermediate value may have: "x" * 10**12 must not take the machine down."""
_STRING_METHODS = frozenset({"strip", "lstrip", "rstrip", "replace", "format", "join", "removeprefix", "removesuffix"})


class Dynamic(Exception):
    """The value is known only when the candidate runs."""


class Scope:
    """Names bound exactly once, to an expression: in a function, then in the module around it."""

    def __init__(self, module: ast.Module) -> None:
        self._module = _bindings(module.body)

    def inside(self, function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> "Names":
        local: dict[str, ast.expr | None] = {}
        if function is not None:
            arguments = function.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            local = {argument.arg: None for argument in every if argument is not None}
            local.update(_bindings(function.body))
        return Names({**self._module, **local})


def _bindings(body: list[ast.stmt]) -> dict[str, ast.expr | None]:
    """Name -> expression; None for a name that is bound more than once or by something other than a plain
    assignment.
    """
    found: dict[str, ast.expr | None] = {}

    def bind(name: str, value: ast.expr | None) -> None:
        found[name] = None if name in found else value

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bind(node.name, None)
            # `global X` inside a function lets it rebind a name of the module.
            for inner in ast.walk(node):
                if isinstance(inner, ast.Global):
                    for name in inner.names:
                        found[name] = None
            return
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            bind(node.targets[0].id, node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.value is not None:
                bind(node.target.id, node.value)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            bind(node.id, None)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = None
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                bind(alias.asname or alias.name.partition(".")[0], None)
        else:
            for child in ast.iter_child_nodes(node):
                visit(child)

    for statement in body:
        visit(statement)
    return found


class Names:
    """Evaluates expressions over known names."""

    def __init__(self, bindings: dict[str, ast.expr | None]) -> None:
        self._bindings = bindings
        self._open: set[str] = set()
        # Without it, a chain of names each used twice in the next would take exponential time.
        self._values: dict[str, Any] = {}

    def value(self, node: ast.expr) -> Any:
        """The value of an expression, or `Dynamic`."""
        result = self._evaluate(node)
        if isinstance(result, str | bytes | list | tuple | dict) and len(result) > _LIMIT:
            raise Dynamic("a constant is too large")
        return result

    def _evaluate(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._name(name)
            case ast.JoinedStr(values=values):
                return "".join(str(self.value(part)) for part in values)
            case ast.FormattedValue(value=inner, conversion=conversion, format_spec=spec):
                return self._formatted(self.value(inner), conversion, "" if spec is None else str(self.value(spec)))
            case ast.List(elts=items):
                return [self.value(item) for item in items]
            case ast.Tuple(elts=items):
                return tuple(self.value(item) for item in items)
            case ast.Dict(keys=keys, values=values):
                return {self.value(k): self.value(v) for k, v in zip(keys, values, strict=True) if k is not None}
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._number(operand)
            case ast.BinOp(left=left, op=operator, right=right):
                return self._binary(self.value(left), operator, self.value(right))
            case ast.Call():
                return self._call(node)
        raise Dynamic(f"`{_short(node)}` is computed when the candidate runs")

    def _name(self, name: str) -> Any:
        bound = self._bindings.get(name)
        if bound is None:
            known = name in self._bindings
            raise Dynamic(f"`{name}` is {'bound twice or not to a constant' if known else 'not bound in this file'}")
        if name in self._values:
            return self._values[name]
        if name in self._open:
            raise Dynamic(f"`{name}` refers to itself")
        self._open.add(name)
        try:
            self._values[name] = self.value(bound)
            return self._values[name]
        finally:
            self._open.discard(name)

    def _number(self, node: ast.expr) -> Any:
        value = self.value(node)
        if not isinstance(value, int | float):
            raise Dynamic(f"`{_short(node)}` is no number")
        return value

    def _formatted(self, value: Any, conversion: int, spec: str) -> str:
        if conversion != -1:
            converters: dict[int, Callable[[Any], str]] = {ord("s"): str, ord("r"): repr, ord("a"): ascii}
            value = converters[conversion](value)
        _bound_width(":" + spec)
        return _try(lambda: format(value, spec))

    def _binary(self, left: Any, operator: ast.operator, right: Any) -> Any:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        match operator:
            case ast.Add():
                return _try(lambda: left + right)
            case ast.Sub() if numbers:
                return left - right
            case ast.Mult() if numbers:
                return _small(left * right)
            case ast.Mult() if isinstance(left, str) and isinstance(right, int) and len(left) * right <= _LIMIT:
                return left * right
            case ast.FloorDiv() if numbers and right != 0:
                return left // right
            case ast.LShift() if isinstance(left, int) and isinstance(right, int) and 0 <= right <= 64:
                return left << right
            case ast.Mod() if isinstance(left, str):
                _bound_width(left)
                _bound_growth(left, right if isinstance(right, tuple) else [right])
                return _try(lambda: left % right)
        raise Dynamic(f"the operator {type(operator).__name__} is not evaluated here")

    def _call(self, node: ast.Call) -> Any:
        arguments = [self.value(argument) for argument in node.args]
        named = {keyword.arg: self.value(keyword.value) for keyword in node.keywords if keyword.arg}
        match node.func:
            case ast.Attribute(value=owner, attr=method) if method in _STRING_METHODS:
                text = self.value(owner)
                # format("{0.__class__}") reaches attributes of values; of these constants none leads anywhere.
                if isinstance(text, str):
                    if method == "format":
                        _bound_width(text)
                    _bound_growth(text, [*arguments, *named.values()])
                    return _try(lambda: getattr(text, method)(*arguments, **named))
            case ast.Attribute(value=ast.Name(id="textwrap"), attr="dedent") | ast.Name(id="dedent"):
                return _try(lambda: textwrap.dedent(*arguments))
            case ast.Name(id="str") if len(arguments) == 1:
                return str(arguments[0])
        raise Dynamic(f"`{_short(node)}` is computed when the candidate runs")


def _bound_width(text: str) -> None:
    if re.search(r"[%:][^{}%\s]*\d{6,}|%\*", text):
        raise Dynamic("a format may be too wide")


def _bound_growth(text: str, values: Sequence[Any]) -> None:
    """Refuses what would blow up: long values put in a great many places of `text`."""
    flat = [str(item) for value in values for item in (value if isinstance(value, list | tuple) else [value])]
    places = max(text.count("{"), text.count("%"), *(text.count(item) for item in flat), 1)
    longest = max((len(item) for item in flat), default=0)
    if places * longest + len(flat) * len(text) > 16 * _LIMIT:
        raise Dynamic("a constant may be too large")


def _small(number: int | float) -> int | float:
    if isinstance(number, int) and number.bit_length() > 4096:
        raise Dynamic("a number is too large")
    return number


def _try(compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, MemoryError) as error:
        raise Dynamic(str(error)) from None


def _short(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else text[:57] + "..."
