"""Can a picture be drawn there? Asked by every command that has `--plot`."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from pkb.types.errors import UserError


def check_plot_target(path: Path, *, endings: Sequence[str]) -> None:
    """UserError for an ending that cannot be drawn, a folder that is not there, or no matplotlib, which is not loaded here."""
    if path.suffix.lower() not in endings:
        raise UserError(f"--plot {path} is neither {' nor '.join(endings)}", "give a file with one of these endings")
    if not path.absolute().parent.is_dir():
        raise UserError(f"the folder of --plot {path} does not exist", f"mkdir -p {path.parent}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("--plot needs matplotlib", "pip install 'pkb[plot]'")
