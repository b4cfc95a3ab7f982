"""A candidate's text as the tests write it."""

from pathlib import Path
from textwrap import dedent

from pkb.candidates.source import Source, parse


def source(text: str) -> Source:
    result = parse(dedent(text).encode(), path=Path("candidate.py"))
    assert result.syntax_error is None, result.syntax_error
    return result
