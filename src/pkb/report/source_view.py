"""Source text as highlighted lines, with marks where a communication path is used. All of it is hostile text."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from pkb.candidates.paths import PathUse, static_paths
from pkb.candidates.source import parse
from pkb.report.words import visible
from pkb.types.errors import UserError

HIGHLIGHT_CHARACTERS = 200_000
SHOWN_LINES = 4000
LINE_CHARACTERS = 2000


class Line(NamedTuple):
    number: int
    html: Markup
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceView:
    lines: tuple[Line, ...]
    uses: tuple[PathUse, ...] = ()
    note: str = ""
    """What is not shown, and why."""


def view(text: str, uses: Iterable[PathUse] = ()) -> SourceView:
    marks: dict[int, list[str]] = {}
    known = tuple(use for use in uses if use.line > 0)
    for use in known:
        marks.setdefault(use.line, []).append(use.path)
    clean = visible(text.replace("\r\n", "\n").replace("\r", "\n"))
    rows = clean.split("\n")
    if rows and not rows[-1]:
        rows.pop()
    notes = []
    if len(rows) > SHOWN_LINES:
        notes.append(f"{len(rows) - SHOWN_LINES} more lines are not shown")
    rows = [row if len(row) <= LINE_CHARACTERS else row[:LINE_CHARACTERS] + " …" for row in rows[:SHOWN_LINES]]
    shown = "\n".join(rows)
    if len(shown) > HIGHLIGHT_CHARACTERS:
        notes.append("too long to be highlighted")
        html = [escape(row) for row in rows]
    else:
        html = highlight(shown)
    return SourceView(
        tuple(
            Line(number, piece, tuple(dict.fromkeys(marks.get(number, ()))))
            for number, piece in enumerate(html, start=1)
        ),
        known,
        "; ".join(notes),
    )


def highlight(text: str) -> list[Markup]:
    """One piece of HTML a line. Pygments escapes what it is given; a span never crosses the end of a line."""
    from pygments import highlight as pygments_highlight

    html = pygments_highlight(text, *_pygments())
    pieces = html.removesuffix("\n").split("\n")
    expected = text.count("\n") + 1
    if len(pieces) != expected:  # a lexer that swallows or makes lines would shift every mark
        return [escape(row) for row in text.split("\n")]
    return [Markup(piece) for piece in pieces]


@cache
def _pygments() -> tuple[Any, Any]:
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True, classprefix="h-")


def candidate_view(data: bytes) -> SourceView:
    """A candidate with the paths that its text seems to use."""
    text = data.decode("utf-8", errors="replace")
    try:
        uses = static_paths(parse(data, path=Path("the source")))
    except (UserError, RecursionError) as error:
        shown = view(text)
        note = f"paths are not marked: {error}"
        return SourceView(shown.lines, (), f"{shown.note}; {note}" if shown.note else note)
    return view(text, uses)
