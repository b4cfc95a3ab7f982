"""What a candidate's constants are worth, found by reading its syntax tree: nothing of the candidate is run.

Sources for compilers are usually string constants, sometimes put together by `+`, f-strings, `.replace` or `.format`.
`fold` gives the text of one expression, with `{}` where a part is unknown; `Constants` also follows names that are bound once,
and says `Dynamic`, with the reason, for what only a run would tell.
"""

import ast
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from pkb.candidates.scopes import PythonScope

UNKNOWN = "{}"
"""Stands in folded text for what only a run would tell."""
_LIMIT = 4 << 20
"""Bytes and items an intermediate value may have: "x" * 10**12 must not take the machine down."""
_STRING_METHODS = frozenset({"strip", "lstrip", "rstrip", "replace", "format", "join", "removeprefix", "removesuffix"})
_CONVERTERS: dict[int, Callable[[Any], Any]] = {-1: lambda value: value, 115: str, 114: repr, 97: ascii}


class Dynamic(Exception):
    """The value is known only when the candidate runs."""


def fold(node: ast.AST | None, no_strings: set[int] | None = None) -> str | None:
    """The text of a string expression: constants, `+`, f-strings; `{}` where a part is unknown. None if it is no
    string. A set of sums known to hold none spares a long sum from being walked again from each of its parts."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(fold(part) or UNKNOWN for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        if no_strings is not None and id(node) in no_strings:
            return None
        left, right = fold(node.left, no_strings), fold(node.right, no_strings)
        if left is None and right is None:
            if no_strings is not None:
                no_strings.add(id(node))
            return None
        return (UNKNOWN if left is None else left) + (UNKNOWN if right is None else right)
    return None


class Constants:
    """Values of expressions over names that are bound exactly once, in a function or around it."""

    def __init__(self) -> None:
        self._evaluators: dict[int, _Evaluator] = {}

    def value(self, node: ast.expr, scope: PythonScope) -> Any:
        """The value of an expression in a scope, or `Dynamic`."""
        if id(scope) not in self._evaluators:
            bindings = dict(scope.bindings)
            outer = scope.outer
            while outer is not None:
                bindings = outer.bindings | bindings
                outer = outer.outer
            self._evaluators[id(scope)] = _Evaluator(bindings)
        return self._evaluators[id(scope)].value(node)


class _Evaluator:
    def __init__(self, bindings: dict[str, ast.expr | None]) -> None:
        self._bindings = bindings
        self._open: set[str] = set()
        # Without it, a chain of names each used twice in the next would take exponential time.
        self._values: dict[str, Any] = {}

    def value(self, node: ast.expr) -> Any:
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
                converted = _CONVERTERS[conversion](self.value(inner))
                wanted = "" if spec is None else str(self.value(spec))
                _bound_width(":" + wanted)
                return _try(lambda: format(converted, wanted))
            case ast.List(elts=items):
                return [self.value(item) for item in items]
            case ast.Tuple(elts=items):
                return tuple(self.value(item) for item in items)
            case ast.Dict(keys=keys, values=values):
                return {self.value(k): self.value(v) for k, v in zip(keys, values, strict=True) if k is not None}
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _try(lambda: -self.value(operand))
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
