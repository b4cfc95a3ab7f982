"""A machine that lacks walls says so: in a warning beside the verdict, in a refusal if that is asked for, in `pkb doctor`."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner
from verdict_examples import example

from pkb.cli.evaluate import _warn
from pkb.cli.main import app
from pkb.rank.isolation import report
from pkb.rank.isolation.report import probe_isolation
from pkb.types.verdict import Verdict

RUNNER = CliRunner()
BARE = {
    "user": "off: user namespaces are closed to us (Operation not permitted)",
    "network": "off: Operation not permitted",
    "mount": "off: Operation not permitted",
    "pid": "off: no /proc of its own (Operation not permitted)",
    "shm": "off: not asked for",
    "process limit": "off: a limit per PID namespace needs Linux 6.14; use a cgroup's pids.max",
    "files": "off: Landlock: Function not implemented; needs Linux 5.13 with landlock among the kernel's lsm=",
    "no_new_privs": "on",
    "build": "off for 2 of 19 layers",
    "build: ipc": "off: Operation not permitted",
    "build: signals": "off: needs Linux 6.12",
}
"""An ordinary user in a container without user namespaces and Landlock."""


def test_missing_walls_are_refused_with_a_way_to_get_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(report, "probe_isolation", lambda: BARE)
    candidate = tmp_path / "1_allreduce.py"
    candidate.write_text("def solution(tensor):\n    return tensor\n")
    result = RUNNER.invoke(app, ["eval", str(candidate), "--platform", "cpu", "--require-isolation"])
    assert result.exit_code == 2
    said = "error: isolation layers are missing on this machine: user, network, mount, pid, files, build: ipc ("
    assert any(
        line.startswith(said) for line in result.stderr.splitlines()
    )  # a slow machine says first that torch loads
    for way in ("unprivileged_userns_clone", "run as root", "SYS_ADMIN", "lsm=landlock"):
        assert way in result.stderr
    report.require_isolation({"network": "on", "shm": "off: not asked for", "signals": "off: needs Linux 6.12"})


def test_missing_walls_are_said_beside_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    _warn(replace(example(Verdict.CORRECT), isolation=BARE))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "warning: this candidate ran without: user, network, mount, pid, files, build: ipc"
    assert len(lines) == 1 + 6 + 1, "one for each"
    _warn(replace(example(Verdict.CORRECT), isolation={"network": "on"}))
    assert not capsys.readouterr().err


def test_every_wall_that_a_probe_can_miss_has_a_remedy() -> None:
    """`pkb doctor` prints them. Limits are set by every kernel, and a probe that fails says why itself."""
    for layer in probe_isolation():
        if layer not in (*report.INSIDE, "limits", "probe"):
            assert "(" in report.missing_walls({layer: "off: x"})[layer], layer
