"""Code blocks of a page of docs, in order: what a reader would type."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(?P<kind>\w+)(?P<more>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    kind: str
    options: dict[str, str]
    """`file=x.py replace` is {"file": "x.py", "replace": ""}."""
    text: str


def blocks(page: str) -> list[Block]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [
        Block(found["kind"], dict((*word.split("=", 1), "")[:2] for word in found["more"].split()), found["text"])
        for found in _BLOCK.finditer(text)
    ]
