"""Programs of `tools` and `benchmarks` as modules: they lie in no package."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def program(path: str) -> Any:
    """`tools/pins.py`, run and known by its stem, as where it is started by hand: others of its folder import it so."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
