"""Rented minutes are not lost to a kill at the wrong moment, to one step that fails, or to a machine that does."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pkb.platforms.base import PlatformFacts
from pkb.platforms.virtual import VirtualPlatform
from program_files import ROOT, program

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def owed(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)  # they import each other
    program("benchmarks/owed_steps.py")
    return program("benchmarks/owed.py")


@pytest.fixture
def at(owed: Any, tmp_path: Path) -> Any:
    """A place without any record."""
    for name in ("records", "out"):
        (tmp_path / name).mkdir()
    return owed.Place("cpu", tmp_path / "out", tmp_path / "records")


def step(owed: Any, text: str, after: Callable[[int], None] = lambda status: None) -> Callable[[Any], Any]:
    """One that is owed for ever: a command that runs this text."""
    command = owed.Command([sys.executable, "-c", text], after)
    return lambda at: owed.Owed("page", ["item"], [command], None)


def test_a_step_that_fails_costs_no_other_its_time(owed: Any, at: Any, capfd: pytest.CaptureFixture[str]) -> None:
    def unreadable(at: Any) -> Any:
        raise ValueError("a line that is no record")

    def half_a_report(status: int) -> None:
        raise SyntaxError("no element found")

    ended: list[int] = []
    owed.STEPS = {
        "unreadable": unreadable, "killed": step(owed, "pass", half_a_report),
        "broken": step(owed, "raise SystemExit(1)", ended.append), "good": step(owed, "pass", ended.append),
    }  # fmt: skip
    assert not owed.work(at, [*owed.STEPS], 100.0, None)
    assert ended == [1, 0]
    said = capfd.readouterr()
    assert "unreadable      1 owed" in said.out
    assert "a line that is no record" in said.err
    assert "no element found" in said.err


def test_a_machine_on_which_nothing_gets_a_verdict_is_given_back(owed: Any, at: Any, tmp_path: Path) -> None:
    """One program may fail by what it judges; the second in a row does not."""
    ended_with: list[int] = []
    gives_up, well = (step(owed, f"raise SystemExit({n})", ended_with.append) for n in (owed.MACHINE_FAILS, 0))
    owed.STEPS = {"a": gives_up, "b": well, "c": gives_up, "d": gives_up, "e": well}
    with pytest.raises(SystemExit) as ended:
        owed.work(at, [*owed.STEPS], 100.0, tmp_path / "a.tar.gz")
    assert ended.value.code == owed.MACHINE_FAILS
    assert ended_with == [owed.MACHINE_FAILS, 0, owed.MACHINE_FAILS, owed.MACHINE_FAILS]
    assert (tmp_path / "a.tar.gz").exists()


def test_what_a_kill_left_half_written_is_made_anew(owed: Any, at: Any) -> None:
    """A folder without a word in it, and a copy of records that was cut off: what it lacks would be measured again."""
    (at.out / owed.PLATFORM).write_text("")
    rows = [{"id": number} for number in range(3)]
    (at.records / "backends.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (at.out / "backends.jsonl").write_text('{"id": 0}\n{"id": 7}\n{"id": 1')
    for _ in range(2):
        owed.prepare(at)
        assert owed.platform_in(at.out) == "cpu"
        assert owed.read_rows(at.out / "backends.jsonl") == [*rows, {"id": 7}], (
            "what was measured here stays the last word"
        )


def test_without_the_help_of_git_there_is_more_to_measure(
    owed: Any, at: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copied checkout may be another user's, for whom git does nothing."""
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(owed, "ROOT", tmp_path)
    row = {"candidate": {"sha256": "", "file": "01_allreduce_cuda.py"}, "started_at": "2026"}
    monkeypatch.setattr(owed, "slower", lambda at: {1: row})
    owed.prepare(at)
    assert "earlier kernels are not at hand" in capsys.readouterr().out


def test_of_an_archive_that_was_cut_off_whole_files_are_taken(
    owed: Any, at: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owed.prepare(at)
    (at.out / "a.jsonl").write_text("{}\n")
    (at.out / "judged.jsonl").write_text(os.urandom(50_000).hex())
    (at.out / "window.jsonl").write_text("{}\n")
    owed.pack(at, tmp_path / "a.tar.gz")
    data, target = (tmp_path / "a.tar.gz").read_bytes(), tmp_path / "unpacked"
    (tmp_path / "cut.tar.gz").write_bytes(data[: len(data) // 2])
    owed.unpack(tmp_path / "cut.tar.gz", target)
    assert {path.name for path in target.iterdir()} == {owed.PLATFORM, "a.jsonl"}
    assert "only 2 files came whole" in capsys.readouterr().out
    (tmp_path / "cut.tar.gz").write_bytes(data[:20])
    owed.unpack(tmp_path / "cut.tar.gz", tmp_path / "nothing")
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert tar.getnames()[0] == owed.PLATFORM, "without it nothing can be merged"


def test_two_programs_do_not_write_to_one_folder(owed: Any, at: Any) -> None:
    asked = [sys.executable, str(BENCHMARKS / "owed.py"), "--platform", "cpu", "--out", str(at.out), "--budget", "0"]
    with owed.alone_in(at.out):
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "another program writes its records to" in done.stderr


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--platform", "gpu"), "no platform is called 'gpu'"),
        (("--sizes", "tiny,huge"), "neither a size nor a problem: huge"),
        (("--kernels", "1,999"), "neither a size nor a problem: 999"),
        (("--budget", "100"), "platform virtual is not available"),
    ],
)
def test_what_can_never_be_measured_is_refused_before_anything_is_begun(
    asked: tuple[str, ...],
    said: str,
    owed: Any,
    at: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a size that no problem has nothing would be owed, which reads as if all were there."""
    monkeypatch.setattr(owed, "STEPS", {"one": step(owed, "pass")})
    monkeypatch.setattr(sys, "argv", ["owed.py", *asked, "--only", "one", "--out", str(at.out)])
    monkeypatch.setattr(VirtualPlatform, "facts", lambda self: PlatformFacts("virtual", False, "no GPU here"))
    with pytest.raises(SystemExit) as ended:
        owed.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_tries_without_a_verdict_are_counted_in_a_row(owed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = program("benchmarks/verdict_table.py")
    tries = table.Tries()
    for _ in range(3):
        for _ in range(sys.modules["kernel_records"].MOST_IN_A_ROW - 1):
            tries.gave("harness_error")
        tries.gave("deadlock")
    said = [SimpleNamespace(size="tiny", verdict="harness_error")] * 100
    monkeypatch.setattr(table, "judge_sizes", lambda work, stop_at: iter([said.pop()]))
    judged = []
    with pytest.raises(SystemExit) as ended:
        judged += table.judge_in_turn([table.Work(None, ("tiny",))] * 100, 1.0)
    assert ended.value.code == owed.MACHINE_FAILS
    assert len(said) == 100 - sys.modules["kernel_records"].MOST_IN_A_ROW


def test_a_judge_that_fails_at_one_file_goes_on_with_the_next(owed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fail there again, and nobody would ever come to those behind it."""
    table = program("benchmarks/verdict_table.py")

    def judge_sizes(work: Any, stop_at: float) -> Any:
        yield SimpleNamespace(size="tiny", verdict="correct")
        if work.alone:
            raise ValueError("a fault of ours")
        yield SimpleNamespace(size="odd", verdict="correct")

    monkeypatch.setattr(table, "judge_sizes", judge_sizes)
    works = [table.Work(None, ("tiny", "odd"), alone=alone) for alone in (True, False)]
    found = [(one.size, one.result) for one in table.judge_in_turn(works, 1.0)]
    assert [size for size, _ in found] == ["tiny", "odd"] * 2
    assert ["a fault of ours" in str(result) for _, result in found] == [False, True, False, False]
