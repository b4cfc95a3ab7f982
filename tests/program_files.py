"""Programs of `tools` and `benchmarks` as modules, since they lie in no package; and whether what they start ends."""

import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]


def program(path: str) -> Any:
    """`tools/pins.py`, run and known by its stem, as when started by hand: it finds others of its folder, and they find it."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    folder = str((ROOT / path).parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def ends(process: psutil.Process, *, within_s: float = 30.0) -> bool:
    """Also where nobody takes note of its end."""
    give_up = time.monotonic() + within_s
    try:
        while process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > give_up:
                return False
            time.sleep(0.05)
    except psutil.NoSuchProcess:
        return True
    return True
