"""`make node` on a CPU: every step that needs no GPU, the archive, and what a merge says to it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pkb.analysis.machine_archive import read_archive
from pkb.analysis.machine_records import MachineRecords, OutcomeOfTest, ProbeFigure, ReferenceTime
from pkb.judge.oracle_only.references import ReferenceRow
from pkb.types.verdict import Verdict

ROOT = Path(__file__).parents[2]
KIT = [sys.executable, str(ROOT / "tools" / "validate_node.py"), "--platform", "cpu", "--quick", "--name", "ci"]


def kit(out: Path, *arguments: str) -> dict[str, str]:
    """The steps, by their outcome."""
    command = [*KIT, "--out", str(out), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "left] step 1 of" in done.stderr, "progress and the time left are shown"
    steps: dict[str, str] = json.loads(done.stdout)["steps"]
    return {name: words.split(",")[0] for name, words in steps.items()}


def archive(out: Path) -> Path:
    (found,) = out.glob("*.tar.gz")
    return found


def read(out: Path) -> MachineRecords:
    return read_archive(archive(out))


@pytest.mark.timeout(280)
def test_the_kit_from_end_to_end(tmp_path: Path) -> None:
    steps = kit(tmp_path / "out", "--budget", "10")
    skipped = {"tests", "build", "kernels-nvls-off", "frontier"}
    assert {name for name, outcome in steps.items() if outcome == "skipped"} == skipped
    assert {outcome for name, outcome in steps.items() if name not in skipped} == {"done"}, steps
    found = read(tmp_path / "out")
    assert found.manifest.machine == "ci"
    assert {one.problem for one in found.of("references.jsonl", ReferenceTime)} == {1, 2, 3}
    assert {one.outcome for one in found.of("tests.jsonl", OutcomeOfTest)} >= {"passed"}
    assert {one.kind for one in found.of("probe.jsonl", ProbeFigure)} == {"matrix", "memory", "link", "latency"}
    assert [one.verdict for one in found.verdicts("kernels.jsonl")] == [Verdict.CORRECT]
    assert all(one.timing for one in found.verdicts("control.jsonl"))
    assert found.records["doctor.jsonl"]

    docs = tmp_path / "docs"
    (docs / "records").mkdir(parents=True)
    for page in ("kernels.md", "references.md"):
        shutil.copy(ROOT / "docs" / page, docs)
    command = [sys.executable, "-m", "pkb.cli.main", "records", "merge", str(archive(tmp_path / "out"))]
    merged = subprocess.run([*command, "--docs", str(docs)], capture_output=True, text=True, timeout=60, check=False)
    if (
        merged.returncode
    ):  # a machine this busy may be faster than itself three times; nothing else may be held against it
        reasons = [line for line in merged.stdout.splitlines() if "refused" in line]
        assert reasons, merged.stderr
        assert all("the reference against itself" in reason for reason in reasons), reasons
    else:
        assert "judge: known, the one installed here" in merged.stdout
        assert "| 01_allreduce | tiny | 2 |" in (docs / "references.md").read_text()


@pytest.mark.timeout(200)
def test_what_was_stopped_goes_on_and_what_is_done_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert kit(out, "--only", "doctor") == {"doctor": "done"}
    before = archive(out).stat().st_mtime_ns
    command = [*KIT, "--out", str(out), "--only", "doctor,references"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        assert "doctor" not in line, "a step that is done is not done again"
        if "step 1 of 1: references" in line:
            break
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert archive(out).stat().st_mtime_ns > before, "an interrupted run leaves its archive too"
    assert [step.outcome for step in read(out).manifest.steps] == ["done", "stopped"]

    row = ReferenceRow(1, "allreduce", "tiny", 2, "bf16", time_us=12345.0, spread_us=(1.0, 2.0))
    (work,) = (path for path in out.iterdir() if path.is_dir())
    (work / "references.jsonl").write_text(json.dumps(row.to_dict()) + '\n{"cut off in the middle')
    assert kit(out, "--only", "references") == {"doctor": "done", "references": "done"}
    times = {one.problem: one.time_us for one in read(out).of("references.jsonl", ReferenceTime)}
    assert times.keys() == {1, 2, 3}
    assert times[1] == 12345.0, "what was there is not measured again"


@pytest.mark.parametrize("moment", [r"\| +torch\._C$", "records in"])
def test_an_interrupt_before_the_first_step_ends_it_with_a_message(tmp_path: Path, moment: str) -> None:
    """In the midst of the imports, which Python is asked to list, and after them."""
    python, *rest = KIT
    command = [python, "-X", "importtime", *rest, "--out", str(tmp_path), "--only", "references"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert any(re.search(moment, line) for line in process.stderr)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said[-3000:]
    assert "interrupted" in said
    assert "Traceback" not in said


def test_a_step_over_its_limit_is_stopped_and_kept_beside_others(tmp_path: Path) -> None:
    assert kit(tmp_path, "--only", "probe", "--budget", "0.04") == {"probe": "stopped"}
    assert kit(tmp_path, "--only", "doctor") == {"probe": "stopped", "doctor": "done"}
    assert [step.outcome for step in read(tmp_path).manifest.steps] == ["stopped", "done"]
