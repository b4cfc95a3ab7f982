"""Adding a platform is a file and a line: a made-up one is evaluated on, shown, told and stored like those that are there."""

import json
import os
import re
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console
from typer.testing import CliRunner

from pkb.cli.main import app
from pkb.cli.panel import render
from pkb.generate.feedback import feedback
from pkb.judge.session import evaluate
from pkb.judge.settling import settle
from pkb.platforms import registry
from pkb.platforms.cpu import CpuPlatform
from pkb.platforms.device_lock import devices_of
from pkb.problems.registry import default_registry
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.plan import Plan
from pkb.types.verdict import Verdict

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "src" / "pkb" / "cli" / "demo_candidates" / "1_allreduce_symmetric.py"
TIMED = Plan("quick", trials=1, odd_trials=0, second_world_trials=0, race_calls=0, race_repeats=0, timing_rounds=2,
             calls_per_round=3, warmup_calls=1, verify_share=0.5)  # fmt: skip


class ToyPlatform(CpuPlatform):
    name = "toy"
    default_size = "odd"
    times = "ranks share a toy; means nothing at all"
    note = "toys are not clocks"


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.PLATFORMS, "toy", ToyPlatform)


def test_the_command_takes_it_and_its_default_size(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ["eval", str(EXAMPLE), "--platform", "toy", "--ranks", "2", "--plan", "quick", "--json", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "toy" in done.output
    document = json.loads(out.read_text())
    assert (document["verdict"], document["platform"], document["size"]) == ("correct", "toy", "odd")
    jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "verdict.schema.json").read_text())).validate(document)
    refused = CliRunner().invoke(app, ["eval", str(EXAMPLE), "--platform", "moon"])
    assert "platforms are auto, toy, cpu" in refused.output


def test_panel_and_feedback_say_what_its_times_mean() -> None:
    case = settle(Case("1", "toy", 2, "tiny", plan="quick"), default_registry()).case
    evaluation = evaluate(Job(EXAMPLE, case, custom_plan=TIMED, call_limit_s=30.0))
    assert evaluation.verdict is Verdict.CORRECT, evaluation.detail
    assert evaluation.timing is not None
    assert evaluation.timing.note == ToyPlatform.note
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(evaluation))
    for text in (console.export_text(), feedback(evaluation)):
        assert f"taken on toy: {ToyPlatform.times}" in re.sub(r"\s+", " ", text)


class NearPlatform(ToyPlatform):
    def cores(self, world_size: int) -> list[tuple[int, ...]]:
        last = max(os.sched_getaffinity(0))
        return [(last,), *[()] * (world_size - 1)]


def test_ranks_stay_on_the_cores_that_their_platform_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.PLATFORMS, "toy", NearPlatform)
    candidate = tmp_path / "1_allreduce_where.py"
    candidate.write_text(
        "import os\nimport torch.distributed as dist\n\n\ndef solution(tensor):\n"
        "    if dist.get_rank() == 0:\n        raise RuntimeError(f'on {sorted(os.sched_getaffinity(0))}')\n"
        "    return tensor\n"
    )
    case = settle(Case("1", "toy", 2, "tiny", plan="quick"), default_registry()).case
    found = evaluate(Job(candidate, case, custom_plan=TIMED, call_limit_s=30.0))
    assert found.detail == f"rank 0 raised RuntimeError: on [{max(os.sched_getaffinity(0))}]"


def test_who_knows_only_its_name_is_told_what_it_is() -> None:
    assert devices_of("toy", 4) == []
    assert registry.traits("toy").shares_device
    assert registry.traits("toy").note == ToyPlatform.note
    unknown = registry.traits("of-another-installation")
    assert (unknown.taken, unknown.shares_device, unknown.note) == ("taken on of-another-installation", False, "")
