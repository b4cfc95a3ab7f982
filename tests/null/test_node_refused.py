"""`make node` on machines that are not ready, which do not exist: it ends within seconds, and says what is missing."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from fake_nvml import FakeGpu, box, install

from pkb.cli.command import note_unused_gpus
from pkb.platforms import nvml, registry
from pkb.platforms.base import PlatformFacts
from pkb.types.errors import UserError
from program_files import ROOT, ends, program


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = program("tools/validate_node.py")
    monkeypatch.setattr(registry, "machine", nvml.machine.__wrapped__)
    return found


@pytest.mark.parametrize(
    ("cards", "runs", "why"),
    [
        (box(8, mig=True), 13000, "split by MIG"),
        (box(8, compute_mode=3), 13000, "-c DEFAULT"),
        (box(8), 12040, "runs CUDA 12.4 at most"),
        (box(8, forbidden=True), 13000, "cannot be opened"),
        ([replace(box(1)[0], name="NVIDIA T400", memory_bytes=4 << 30), *box(3)[1:]], 13000, ""),
        (box(8), 13000, ""),
        ([], 13000, ""),
    ],
    ids=["mig", "exclusive", "driver", "forbidden", "two kinds", "ready", "no gpu"],
)
def test_gpus_that_cannot_be_used_are_no_reason_to_measure_the_cpu_for_an_hour(
    cards: list[FakeGpu], runs: int, why: str, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, cards, runs=runs)
    if not why:
        assert kit.settled("auto").name == ("node" if cards else "cpu")
        return
    with pytest.raises(UserError, match=why):
        kit.settled("auto")
    assert kit.settled("cpu").name == "cpu", "unless asked for by its name"


@pytest.mark.parametrize(("cards", "said"), [(box(8), True), ([], False)], ids=["gpus", "no gpus"])
def test_a_verdict_without_a_gpu_says_why_on_a_machine_with_some(
    cards: list[FakeGpu], said: bool, kit: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`auto` means the cpu then, and all else looks as it should."""
    install(monkeypatch, cards, runs=12040)
    note_unused_gpus("cpu")
    assert (
        "note: GPUs of this machine are not used. node: driver 580.95 runs CUDA 12.4" in capsys.readouterr().err
    ) is said


def test_several_gpus_are_not_measured_as_one_unasked(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, box(8, compute_mode=3))
    shared = PlatformFacts("virtual", available=True)
    monkeypatch.setattr(sys.modules["node_platform"], "pick", lambda asked: shared)
    with pytest.raises(UserError, match="only platform virtual works"):
        kit.settled("auto")
    assert kit.settled("virtual") is shared
    install(monkeypatch, box(1))
    assert kit.settled("auto") is shared


def run(kit: Any, work: Path, doctors: str, *, shares_device: bool = False) -> tuple[int, list[str]]:
    """The exit status and the steps that were begun, where the doctor is this program."""
    begun: list[str] = []

    def step(name: str, text: str) -> Any:
        def commands(_: Any) -> Any:
            begun.append(name)
            yield [sys.executable, "-c", text]

        return kit.Step(name, 1, commands)

    facts = PlatformFacts("node", available=True, max_ranks=8, shares_device=shares_device)
    steps = [step("doctor", doctors), step("probe", "pass")]
    return kit.run_all(kit.Kit(facts, 8, False, work), kit.Clock(1), steps), begun


def document(*, ok: bool) -> str:
    facts = [
        {"section": "software", "name": "cutlass", "ok": False, "found": "not installed", "to_do": "pip"},
        {
            "section": "trial",
            "name": "all-reduce",
            "ok": ok,
            "found": "the ranks did not start",
            "to_do": "see NCCL_DEBUG",
        },
    ]
    return json.dumps({"facts": facts})


@pytest.mark.parametrize(("ok", "status", "begun"), [(True, 0, ["doctor", "probe"]), (False, 2, ["doctor"])])
def test_where_gpus_do_not_work_together_nothing_waits_for_them_again(
    ok: bool, status: int, begun: list[str], kit: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"print({document(ok=ok)!r}); raise SystemExit({status})"
    assert run(kit, tmp_path, text) == (status, begun)
    said = capsys.readouterr().err
    assert ("trial: all-reduce: the ranks did not start; see NCCL_DEBUG" in said) is not ok
    assert "cutlass" not in said, "it only matters to some candidates"


def test_a_doctor_that_does_not_end_is_an_answer_too(
    kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kit, "LEAST_S", 0.2)
    monkeypatch.setattr(kit, "Clock", lambda minutes, clock=kit.Clock: clock(minutes / 12))
    assert run(kit, tmp_path, "import time; time.sleep(60)") == (2, ["doctor"])
    assert "`pkb doctor --node` did not come to its end" in capsys.readouterr().err


def test_a_platform_of_one_gpu_does_without_a_doctor(kit: Any, tmp_path: Path) -> None:
    assert run(kit, tmp_path, "raise SystemExit(2)", shares_device=True) == (0, ["doctor", "probe"])


STEP = """
import sys
from pathlib import Path
import validate_node as kit
from pkb.platforms.base import PlatformFacts
text = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
step = kit.Step("probe", 1, lambda _: iter([[sys.executable, "-c", text]]))
node = kit.Kit(PlatformFacts("node", available=True), 8, False, Path(sys.argv[1]), limit_s=60)
kit.run_step(step, node, kit.Clock(1))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_lost_connection_leaves_nobody_behind_on_the_gpus(number: int, tmp_path: Path) -> None:
    """A step has a session of its own, and the next start would wait for the GPUs that it holds."""
    command = [sys.executable, "-c", STEP, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tools")}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        step = psutil.Process(int(process.stderr.readline().split()[-1]))
        process.send_signal(number)
    assert ends(step)


def test_a_line_that_cannot_be_read_costs_no_archive(kit: Any, tmp_path: Path) -> None:
    path = tmp_path / "references.jsonl"
    path.write_text('{"id": 1}\n{"id": 2, "si{"id": 3}\n{"id": 4}\n')
    assert sys.modules["node_records"].rows(path) == [{"id": 1}, {"id": 4}]
