"""docs/tutorial.md as a newcomer follows it: its files are written, its commands run, and each prints what the page says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from page_code import Block, blocks

LIMIT_S = 240


@pytest.mark.slow
def test_every_command_of_the_tutorial(tmp_path: Path) -> None:
    """Four evaluations, a sweep and a report: 1.8 minutes on two busy cores."""
    scripts = tmp_path / "bin"
    scripts.mkdir()
    (scripts / "pkb").write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m pkb.cli.main "$@"\n')
    (scripts / "pkb").chmod(0o755)
    folder = tmp_path / "here"
    folder.mkdir()
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "COLUMNS": "100"}
    said, ran = "", 0
    for block in blocks("tutorial.md"):
        if block.kind == "python":
            _write(folder, block)
        elif block.kind == "sh":
            done = subprocess.run(
                ["sh", "-e", "-c", block.text], cwd=folder, env=environment, capture_output=True, text=True,
                check=False, timeout=LIMIT_S,
            )  # fmt: skip
            assert done.returncode == int(block.options.get("status", "0")), f"{block.text}{done.stdout}{done.stderr}"
            said, ran = " ".join(done.stdout.split()), ran + 1
        elif block.kind == "text":
            for line in filter(None, map(str.strip, block.text.splitlines())):
                assert " ".join(line.split()) in said, f"{line!r} is not in: {said}"
    assert ran == 6
    assert (folder / "verdict.json").is_file()
    assert (folder / "site" / "index.html").is_file()


def _write(folder: Path, block: Block) -> None:
    """A whole file; or, with `replace`, lines in place of those from the first line that is the same, or of the last one."""
    path = folder / block.options["file"]
    if "replace" not in block.options:
        path.write_text(block.text)
        return
    lines, new = path.read_text().splitlines(), block.text.splitlines()
    at = lines.index(new[0]) if new[0] in lines else len(lines) - 1
    path.write_text("\n".join([*lines[:at], *new, *lines[at + 1 :]]) + "\n")
