"""Walks over C++ text that a preprocessor has been through: strings are skipped, parentheses are counted."""

import re
from collections.abc import Iterator

STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_QUOTED = re.compile(r"""R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+'""", re.S)
_OPEN, _CLOSE = "([{", ")]}"


def characters(text: str, start: int = 0, *, angles: bool = False) -> Iterator[tuple[int, str, int]]:
    """Index, character and depth of brackets after it, of what is not quoted. `angles` count too, where they are brackets."""
    at, depth = start, 0
    opening, closing = (_OPEN + "<", _CLOSE + ">") if angles else (_OPEN, _CLOSE)
    while at < len(text):
        character = text[at]
        if character in "\"'R" and (found := _QUOTED.match(text, at)) is not None and not _inside_number(text, at):
            at = found.end()
            continue
        if character in opening:
            depth += 1
        elif character in closing and not (angles and character == ">" and text[at - 1] == "-"):
            depth -= 1
        yield at, character, depth
        at += 1


def _inside_number(text: str, at: int) -> bool:
    """Whether it is a separator of digits (1'000) or the end of a longer name (fooR"...")."""
    return at > 0 and (text[at - 1].isalnum() or text[at - 1] == "_") and text[at] in "'R"


def closing(text: str, start: int) -> int:
    """Where the bracket closes inside which `start` lies."""
    for at, _, depth in characters(text, start):
        if depth < 0:
            return at
    raise ValueError("a bracket is never closed")


def split(text: str, separator: str, *, angles: bool = False) -> list[str]:
    """The parts between separators that are in no bracket."""
    cuts = [at for at, character, depth in characters(text, angles=angles) if character == separator and depth == 0]
    return [text[a + 1 : b] for a, b in zip([-1, *cuts], [*cuts, len(text)], strict=True)]


def quoted_spans(text: str) -> list[tuple[int, int]]:
    return [found.span() for found in _QUOTED.finditer(text)]
