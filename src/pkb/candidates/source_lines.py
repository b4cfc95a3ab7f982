"""Which line of a candidate a place in what was compiled from it is: CUDA stands in strings of the Python file.

A report names `all_reduce.cu:14`, as the compiler counted. Here that becomes the line's text, and its number in the file that
a person has open.
"""

import ast
from functools import cached_property
from typing import NamedTuple

from pkb.candidates.compiler_log import candidate_line
from pkb.candidates.constants import Constants, Dynamic, fold
from pkb.candidates.polling import looks_unseen, polls
from pkb.candidates.prebuild import arguments_of, find_calls
from pkb.candidates.source import Source
from pkb.kit.cuda import _headers, _plain_name
from pkb.types.protocol.limits import MAX_NAME, clean
from pkb.types.words import without_controls

_INLINE_HEAD = "\n" * 3
"""Lines that `load_inline` puts before a candidate's own."""


class SourcePlace(NamedTuple):
    text: str
    """Of the line; empty where it is not known."""
    candidate_line: int
    """In the candidate's file; 0 where it cannot be said, or where it is a header's."""


class SourceLines:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._known: dict[tuple[str, int], SourcePlace] = {}

    @cached_property
    def may_poll(self) -> bool:
        """Whether its Python may wait for a value in memory, rather than for a barrier."""
        return polls(self._source.tree) if self._source.tree else True

    @property
    def looks_unseen(self) -> bool:
        return looks_unseen(self._source.text)

    def at(self, file: str, line: int) -> SourcePlace:
        """Whatever the names: a report is a claim of the candidate's processes."""
        if (file, line) not in self._known:
            self._known[file, line] = self._find(file, line)
        return self._known[file, line]

    def _find(self, file: str, line: int) -> SourcePlace:
        name = file.rpartition("/")[2]
        if name in (self._source.path.name, "candidate.py"):
            return SourcePlace(_line(self._source.text, line), line if line <= self._source.text.count("\n") + 1 else 0)
        if name in _headers():
            return SourcePlace(_line(_headers()[name], line), 0)
        compiled = self._compiled.get(name) or self._only
        if not compiled:
            return SourcePlace("", 0)
        found = candidate_line(line, compiled=compiled, candidate=self._source.text)
        return SourcePlace(_line(compiled, line), found or 0)

    @cached_property
    def _compiled(self) -> dict[str, str]:
        """The texts that builders are given, by the names that compilers know them by."""
        found: dict[str, str] = {}
        if self._source.tree is None:
            return found
        constants = Constants()
        for call in find_calls(self._source.tree):
            try:
                given = arguments_of(call, constants)
            except (Dynamic, RecursionError):
                continue
            text = given.get("source") or given.get("cuda_src")
            if isinstance(text, str):
                found[f"{_plain_name(str(given.get('name') or 'kernel'))}.cu"] = text
        return found

    @cached_property
    def _only(self) -> str:
        """The one text with kernels, where there is one: its name may be made at run time."""
        if self._source.tree is None:
            return ""
        texts = {
            fold(node) or "" for node in ast.walk(self._source.tree) if isinstance(node, ast.Constant | ast.JoinedStr)
        }
        kernels = [text for text in texts if "__global__" in text]
        head = _INLINE_HEAD if "load_inline" in self._source.text else ""
        return head + kernels[0] if len(kernels) == 1 else ""


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return clean(without_controls(lines[number - 1]).strip(), MAX_NAME) if 1 <= number <= len(lines) else ""
