"""Files that are written as candidates are, in a rank of `race_world`: which problem they solve, and their function."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def header(text: str, name: str) -> str | None:
    """What stands behind `# problem:` and its like."""
    found = re.search(rf"^# {name}: (\S+)", text, re.MULTILINE)
    return found[1] if found else None


def problem_of(path: Path) -> str:
    return header(path.read_text(), "problem") or str(int(path.name[:2]))


def load(path: Path) -> ModuleType:
    sys.path.insert(0, str(ROOT / "src" / "pkb" / "kit" / "upstream"))
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    return module
