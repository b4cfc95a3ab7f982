"""What a shell offers after TAB: names of problems and of stored runs. Nothing heavy is imported: it is asked at every TAB."""

import re
from pathlib import Path
from typing import Any


def problem_names(incomplete: str) -> list[str]:
    """Also the last of a list: `1-8,13_ge`."""
    before, comma, last = incomplete.rpartition(",")
    found = []
    for path in sorted((Path(__file__).parents[1] / "problems").glob("p*_*.py")):
        if named := re.fullmatch(r"p(\d+)_(\w+)", path.stem):
            found += [named[2], f"{int(named[1]):02d}_{named[2]}"]
    return [before + comma + name for name in found if name.startswith(last)]


def run_names(ctx: Any, incomplete: str) -> list[str]:
    from pkb.store import Reader, root_folder
    from pkb.types.errors import UserError

    try:
        with Reader(root_folder(ctx.params.get("store"))) as reader:
            names = [name for run in reader.runs() for name in (run.name, run.id) if name]
    except UserError:  # no store here: nothing to offer
        return []
    return [name for name in dict.fromkeys(["latest", *names]) if name.startswith(incomplete)]
