"""The `--store DIR` option that several commands share: where runs are kept."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pkb.store import Reader, Store

StoreFolder = Annotated[
    Path | None,
    typer.Option("--store", metavar="DIR", help="Where runs are kept. Default: $PKB_STORE, else ./pkb-runs."),
]


def open_reader(folder: Path | None) -> "Reader":
    """For reading; refused where nothing is stored."""
    from pkb.store import Reader, root_folder

    return Reader(root_folder(folder))


def open_store(folder: Path | None) -> "Store":
    """For writing; made where there is none."""
    from pkb.store import Store, root_folder

    return Store(root_folder(folder))
