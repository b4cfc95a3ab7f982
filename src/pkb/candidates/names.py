"""What the names in a candidate mean: `t.cuda.synchronize` after `import torch as t` is `torch.cuda.synchronize`.

Rules ask for meanings, not spellings, so that an alias does not hide a call and a method of the candidate's own that
happens to be called `synchronize` is not taken for torch's. It follows imports, plain aliases (`sync =
torch.cuda.synchronize`), `getattr` and `__import__` with constant text, `sys.modules[...]`, `vars(x)[...]` and
`x.__dict__[...]`. It knows no scopes and runs nothing: text put together at run time stays unknown, which is why the
rules built on it are triage.
"""

import ast
import builtins
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from pkb.candidates.constants import UNKNOWN, fold

_C_TOKENS = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_BUILTINS = frozenset(dir(builtins))


class Reference(NamedTuple):
    """A use of an imported or built-in name."""

    name: str
    node: ast.expr
    line: int


@dataclass(frozen=True)
class Literal:
    """A string in the source that is not a docstring. Embedded CUDA and C++ are such strings."""

    text: str
    line: int
    last_line: int
    node: ast.expr = field(repr=False, compare=False)

    @cached_property
    def code(self) -> str:
        """The text without C++ comments, every other character in its place."""
        return strip_comments(self.text)

    @cached_property
    def _newlines(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]

    def line_of(self, offset: int) -> int:
        """The line of the file on which a character lies; exact for triple-quoted text without escaped newlines."""
        return min(self.line + bisect_left(self._newlines, offset), self.last_line)

    def code_at(self, offset: int) -> str:
        """The line of code around a character: evidence to show, so cut where nobody would read on."""
        index = bisect_left(self._newlines, offset)
        start = self._newlines[index - 1] + 1 if index else 0
        end = self._newlines[index] if index < len(self._newlines) else len(self.text)
        return self.code[start : min(end, start + 300)].strip()


class Names:
    def __init__(self, nodes: tuple[ast.AST, ...]) -> None:
        self._nodes = nodes
        self._imported: dict[str, str] = {}
        self._stars: list[str] = []
        self.imports: list[tuple[str, int]] = []
        """Every module or member that an import statement names, with its line."""
        self._collect_imports()
        self._bound = _bound_names(nodes) | set(self._imported)
        self._collect_aliases()

    def dotted(self, node: ast.AST | None) -> str | None:
        """The full name that an expression stands for, or None where it is the candidate's own or only known at
        run time."""
        if isinstance(node, ast.Name):
            return self._dotted_name(node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return None if base is None else f"{base}.{node.attr}"
        if isinstance(node, ast.Subscript):
            return self._dotted_item(node)
        if isinstance(node, ast.Call):
            return self._dotted_call(node)
        return None

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """Every outermost expression that has a meaning: `torch.cuda.Event`, not also `torch.cuda` and `torch` in
        it."""
        return tuple(self._references())

    def _references(self) -> Iterator[Reference]:
        inner = {id(node.value) for node in self._nodes if isinstance(node, ast.Attribute)}
        for node in self._nodes:
            if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript) and id(node) not in inner:
                name = self.dotted(node)
                if name is not None:
                    yield Reference(name, node, node.lineno)

    @cached_property
    def calls(self) -> tuple[tuple[str, ast.Call], ...]:
        """Every call of something imported or built in."""
        named = ((self.dotted(node.func), node) for node in self._nodes if isinstance(node, ast.Call))
        return tuple((name, node) for name, node in named if name is not None)

    @cached_property
    def literals(self) -> tuple[Literal, ...]:
        """Strings, joined where the source joins them; docstrings and other strings that nobody uses are left out."""
        return tuple(self._literals())

    def _literals(self) -> Iterator[Literal]:
        skipped: set[int] = set()
        no_strings: set[int] = set()
        for node in self._nodes:  # ast.walk goes from the outside in, so a joined string comes before its parts
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                skipped.add(id(node.value))
            elif isinstance(node, ast.BinOp | ast.JoinedStr | ast.Constant) and id(node) not in skipped:
                text = fold(node, no_strings)
                if text is not None and text != UNKNOWN:
                    skipped |= {id(part) for part in ast.walk(node)}
                    yield Literal(text, node.lineno, node.end_lineno or node.lineno, node)

    def _collect_imports(self) -> None:
        for node in self._nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.imports.append((alias.name, node.lineno))
                    top = alias.name.partition(".")[0]
                    self._imported[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                for alias in node.names:
                    self.imports.append((f"{module}.{alias.name}", node.lineno))
                    if alias.name == "*":
                        self._stars.append(module)
                    else:
                        self._imported[alias.asname or alias.name] = f"{module}.{alias.name}"

    def _collect_aliases(self) -> None:
        """`sync = torch.cuda.synchronize`, and an alias of that alias."""
        for _ in range(2):
            for node in self._nodes:
                value = node.value if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) else None
                if not isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
                    continue
                name = self.dotted(value)
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                for target in targets:
                    if name is not None and isinstance(target, ast.Name):
                        self._imported.setdefault(target.id, name)

    def _dotted_name(self, name: str) -> str | None:
        if name in self._imported:
            return self._imported[name]
        if name in ("builtins", "__builtins__"):
            return "builtins"
        if name in self._bound:
            return None
        if name in _BUILTINS:
            return f"builtins.{name}"
        return f"{self._stars[-1]}.{name}" if self._stars else None

    def _dotted_item(self, node: ast.Subscript) -> str | None:
        """`sys.modules["x"]` is x; `x.__dict__["y"]`, `vars(x)["y"]` and `__builtins__["y"]` are x.y."""
        base = self.dotted(node.value)
        key = fold(node.slice)
        if base is None or key is None or UNKNOWN in key:
            return None
        if base == "sys.modules":
            return key
        if base.endswith(".__dict__"):
            return f"{base.removesuffix('.__dict__')}.{key}"
        return f"{base}.{key}" if base == "builtins" else None

    def _dotted_call(self, node: ast.Call) -> str | None:
        function = self.dotted(node.func)
        first = node.args[0] if node.args else None
        if function == "builtins.vars" and first is not None:
            base = self.dotted(first)
            return None if base is None else f"{base}.__dict__"
        if function == "builtins.getattr" and len(node.args) >= 2:
            base, key = self.dotted(first), fold(node.args[1])
            return None if base is None or key is None or UNKNOWN in key else f"{base}.{key}"
        if function in ("builtins.__import__", "importlib.import_module", "sys.modules.get") and first is not None:
            name = fold(first)
            return None if name is None or UNKNOWN in name else name
        return None


def strip_comments(code: str) -> str:
    """C++ without its comments, every other character in its place: a comment that names an instruction does not
    use it."""

    def blank(match: re.Match[str]) -> str:
        token = match.group()
        return re.sub(r"[^\n]", " ", token) if token.startswith("/") else token

    return _C_TOKENS.sub(blank, code)


def is_code(text: str) -> bool:
    """CUDA, C++ or PTX, rather than a message or a name."""
    return ";" in text and any(bracket in text for bracket in "{([")


def under(name: str, *prefixes: str) -> bool:
    """Is it one of these, or a member of one?"""
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def _bound_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that the candidate binds anywhere. A method binds none: it is reached through its object only."""
    methods = {id(member) for node in nodes if isinstance(node, ast.ClassDef) for member in node.body}
    bound: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and id(node) not in methods:
            bound.add(node.name)
    return bound
