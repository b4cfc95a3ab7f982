"""A candidate's file, read and parsed but never run.

What is wrong with the file as a file (missing, too large, not text) is wrong usage. What is wrong with the Python in
it is a verdict: `compile_error` for a syntax error, `load_error` for a file without `solution`.
"""

import ast
import hashlib
import io
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pkb.candidates.names import Names
from pkb.types.errors import UserError
from pkb.types.verdict import Failure, FailureKind

MAX_BYTES = 1 << 19
"""Ten times the longest candidate that anybody has written; reading more would keep the judge busy for minutes."""
MAX_DEPTH = 250
"""Deeper nesting is not read: our own walks over it, and Python's compiler, would run out of stack."""


@dataclass(frozen=True)
class Source:
    path: Path
    text: str
    sha256: str
    tree: ast.Module | None = field(repr=False, compare=False)
    """None exactly when `syntax_error` is not."""
    syntax_error: Failure | None = None
    """Why the text is not Python: the parser's message, and in `trace` the line."""
    syntax_line: int = 0
    """1-based; 0 where there is no error or the parser names no line."""

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree)) if self.tree is not None else ()

    @cached_property
    def names(self) -> Names:
        return Names(self.nodes)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        return tuple(self.text.split("\n"))

    def line_text(self, line: int) -> str:
        return self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""


def read(path: Path) -> Source:
    """The file's bytes are hashed as they lie on disk, so that the hash names what will run."""
    return parse(_read_bytes(path), path=path)


def parse(data: bytes, *, path: Path) -> Source:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start})", "a candidate is Python source") from error
    _check_declared_encoding(data, path)
    if not text.strip():
        raise UserError(f"{path} is empty", "a candidate is a .py file that defines solution(...)")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    parsed = _parse_text(text)
    sha256 = hashlib.sha256(data).hexdigest()
    if isinstance(parsed, ast.Module):
        return Source(path=path, text=text, sha256=sha256, tree=parsed)
    message, line = parsed
    lines = text.split("\n")
    trace = f"line {line}: {lines[line - 1].strip()[:300]}" if 0 < line <= len(lines) else ""
    failure = Failure(FailureKind.SYNTAX, message, trace=trace, name="SyntaxError")
    return Source(path=path, text=text, sha256=sha256, tree=None, syntax_error=failure, syntax_line=line)


def has_solution(tree: ast.Module) -> bool:
    """Does the module bind `solution` where an import of it would find it: at top level, also inside if, try or
    with?"""
    return any("solution" in bound_by(statement) for statement in _top_level(tree))


def _check_declared_encoding(data: bytes, path: Path) -> None:
    """`# coding: utf-7` would make Python run another text than the one that is read here."""
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    except SyntaxError as error:
        raise UserError(f"{path}: {error}", "a candidate is UTF-8") from error
    if encoding not in ("utf-8", "utf-8-sig"):
        raise UserError(f"{path} declares the encoding {encoding}", "a candidate is UTF-8")


def _read_bytes(path: Path) -> bytes:
    fix = "give the path of a .py file that defines solution(...)"
    try:
        if not path.exists():
            raise UserError(f"{path} does not exist", fix)
        if path.is_dir():
            raise UserError(f"{path} is a directory", "give one .py file")
        if not path.is_file():  # a pipe or a device could be read for ever
            raise UserError(f"{path} is not a regular file", "give one .py file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path itself
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}", fix) from error
    if len(data) > MAX_BYTES:
        raise UserError(f"{path} is larger than {MAX_BYTES >> 10} KiB", "a candidate is source, not data")
    return data


class _Problem(NamedTuple):
    message: str
    line: int


def _parse_text(text: str) -> ast.Module | _Problem:
    """Hostile text can make the parser raise more than SyntaxError; none of that is our bug."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a CUDA string is no news for whoever runs the judge
            tree = ast.parse(text)
    except SyntaxError as error:
        return _Problem(error.msg or "invalid syntax", error.lineno or 0)
    except (RecursionError, MemoryError):
        return _Problem("nested too deeply for Python's parser", 0)
    except ValueError as error:  # zero bytes
        return _Problem(str(error), 0)
    deep = _deepest(tree)
    if deep is not None:
        return _Problem(f"nested more than {MAX_DEPTH} levels deep", getattr(deep, "lineno", 0))
    return tree


def _deepest(tree: ast.Module) -> ast.AST | None:
    """The first node beyond MAX_DEPTH, level by level: recursion is what this guards against."""
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return level[0] if level else None


def _top_level(tree: ast.Module) -> Iterator[ast.stmt]:
    waiting = list(reversed(tree.body))
    while waiting:
        statement = waiting.pop()
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.TryStar | ast.With | ast.For | ast.While):
            inner = [*statement.body, *getattr(statement, "orelse", []), *getattr(statement, "finalbody", [])]
            for handler in getattr(statement, "handlers", []):
                inner += handler.body
            waiting += reversed(inner)


def bound_by(statement: ast.stmt) -> set[str]:
    """Names that one statement binds, those inside it left aside."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
