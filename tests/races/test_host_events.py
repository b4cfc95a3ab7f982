"""What torch, Triton and process groups do is recorded as on a GPU: honest programs get no report, racy ones theirs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
HERE = Path(__file__).parent
sys.path.append(str(HERE))

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def found() -> Found:
    done = subprocess.run(
        [sys.executable, str(HERE / "programs.py")], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["name"]: one for one in said}
