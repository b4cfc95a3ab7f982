"""The `--problems-dir DIR` option that several commands share: a user's own problem modules beside the package's."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pkb.types.errors import UserError

if TYPE_CHECKING:
    from pkb.problems.registry import Registry

ProblemsFolder = Annotated[
    Path | None,
    typer.Option("--problems-dir", metavar="DIR", help="A folder with your own problem modules (pNN_name.py)."),
]


def open_registry(folder: Path | None) -> "Registry":
    """The package's problems, and those of the folder if one is given."""
    from pkb.cli.output import load_torch

    load_torch()
    from pkb.problems.registry import default_registry

    if folder is None:
        return default_registry()
    if not folder.is_dir():
        what = "is not a directory" if folder.exists() else "does not exist"
        raise UserError(f"--problems-dir {folder} {what}", "give a folder with modules named pNN_name.py")
    registry = default_registry().with_folder(folder)
    for entry in registry.broken():
        print(f"left out: {entry.why_broken}", file=sys.stderr)
    return registry
