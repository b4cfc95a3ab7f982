"""What torch, Triton and process groups do is recorded as on a GPU: honest programs get no report, racy ones theirs."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
HERE = Path(__file__).parent

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def found() -> Found:
    done = subprocess.run(
        [sys.executable, str(HERE / "programs.py")], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["name"]: one for one in said}


def _programs() -> list[Any]:
    """By their text: the module must not be imported here, where Triton may be one that compiles."""
    own = re.findall(r'^    Program\("([^"]+)"', (HERE / "programs.py").read_text(), re.M)
    ways = re.findall(
        r'^    "(torch: set-up, [^"]+)": (?:True|False),$', (HERE / "set_up_programs.py").read_text(), re.M
    )
    return [*own, *(f"{way}, torch.{dtype}" for way in ways for dtype in ("uint8", "int32"))]


@pytest.mark.parametrize("name", _programs())
def test_a_race_is_found_where_one_is_and_nowhere_else(name: str, found: Found) -> None:
    one = found[name]
    assert not one["trouble"]
    assert not one["report"]["broken"]
    assert not one["report"]["truncated"]
    kinds = {finding["kind"] for finding in one["report"]["findings"]}
    assert bool(kinds) == bool(one["expected"]), one["report"]["findings"]
    assert kinds <= set(one["expected"])
    assert one["unknown"] == one["unknown_expected"]
    text = (HERE / "programs.py").read_text().splitlines()
    named = {
        text[side["line"] - 1].strip()
        for f in one["report"]["findings"]
        for side in (f["first"], f["second"])
        if side["line"]
    }
    for line in one["lines"]:
        assert any(line in shown for shown in named), named
