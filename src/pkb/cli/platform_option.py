"""The option that chooses where ranks run."""

from typing import Annotated

import typer

from pkb.platforms.registry import names
from pkb.types.case import AUTO

PlatformOption = Annotated[
    str, typer.Option("--platform", help=f"Where ranks run: one of {', '.join((AUTO, *names()))}.")
]
