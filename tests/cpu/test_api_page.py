"""docs/api.md: its examples are one program, run from top to bottom in an empty folder."""

import subprocess
import sys
from pathlib import Path

from page_code import blocks


def test_the_examples_of_the_api_page_run(tmp_path: Path) -> None:
    examples = [block.text for block in blocks("api.md") if block.kind == "python"]
    assert len(examples) == 7
    program = tmp_path / "program.py"
    program.write_text("\n".join(examples))
    done = subprocess.run(
        [sys.executable, "-P", str(program)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert "correct" in done.stdout
    assert "us, " in done.stdout
