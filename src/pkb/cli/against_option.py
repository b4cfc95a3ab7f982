"""`--against`: which of a problem's own functions candidates are timed against."""

from typing import Annotated

import typer

from pkb.types.errors import UserError
from pkb.types.stock import AGAINST, Against

AgainstOption = Annotated[
    str,
    typer.Option(help="What candidates are timed against: the problem's baseline, or its reference (as published)."),
]


def known_against(word: str) -> Against:
    for known in AGAINST:
        if word == known:
            return known
    raise UserError(f"--against {word!r} is not known", f"one of {', '.join(AGAINST)}")
