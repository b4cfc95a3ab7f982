"""The pieces: inspect's own way in, the judge's process and its lock, the choice of the best kernel, the pages of the kit."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import eval as inspect_eval
from inspect_ai.log import read_eval_log
from typer.testing import CliRunner

from pkb.cli.main import app
from pkb.generate.attempt import Attempt, Judged, as_file
from pkb.generate.journal import Journal
from pkb.generate.judging import Judge, JudgeFailed
from pkb.generate.models import ModelReply
from pkb.generate.prices import Price
from pkb.generate.registry import oneshot
from pkb.generate.settings import Settings
from pkb.generate.tasks import _score, keys_text
from pkb.generate.tools import KIT_PAGES, kit_page
from pkb.generate.work import Work, items_of
from pkb.judge.service.messages import JudgeOrder
from pkb.platforms.device_lock import hold
from pkb.store import Reader
from pkb.types.case import Case
from pkb.types.document import VerdictDocument
from pkb.types.errors import UserError
from pkb.types.processes import without_secrets

ROOT = Path(__file__).parents[2]
# Judged by its text alone: no ranks are started, so these tests are quick.
REJECTED = "import pkb.judge.session\n\n\ndef solution(tensor):\n    return tensor\n"
ORDER = JudgeOrder(
    id="1", kind="evaluate", source=REJECTED.encode(), filename="01_allreduce_triton.py", alone=True,
    case=Case("01_allreduce", "cpu", 2, "tiny", "bf16", "quick"),
)  # fmt: skip


def script(folder: Path, answers: dict[str, list[Any]]) -> str:
    path = folder / "script.json"
    path.write_text(json.dumps(answers))
    return f"scripted/{path}"


def test_inspect_eval_runs_our_task_by_itself(tmp_path: Path) -> None:
    model = script(tmp_path, {"01_allreduce": [f"```python\n{REJECTED}```"], "02_allgather": ["no code"]})
    task = oneshot(problems="1,2", backend="triton", platform="cpu", ranks=2, plan="quick")
    (log,) = inspect_eval(task, model=model, log_dir=str(tmp_path / "logs"), display="none", ctl_server=False)
    assert log.status == "success"
    assert log.samples is not None
    scores = {sample.id: (sample.scores or {})["verdict"] for sample in log.samples}
    assert scores["01_allreduce-s0"].value == {"correct": 0, "faster": 0}
    assert (scores["01_allreduce-s0"].metadata or {})["verdict"] == "rejected"
    assert "broke the rule" in (scores["01_allreduce-s0"].explanation or "")
    assert "no code block" in (scores["02_allgather-s0"].explanation or "")


@pytest.mark.parametrize(
    ("given", "meant"), [("1,2", "1,2"), (["1", "13"], "1,13"), ([1, 13], "1,13"), (13, "13"), ("1-8,13", "1-8,13")]
)
def test_problems_as_inspects_command_line_gives_them(given: Any, meant: str) -> None:
    assert keys_text(given) == meant


def test_inspects_own_command_takes_lists_and_tells_mistakes_in_a_line(tmp_path: Path) -> None:
    model = script(tmp_path, {"*": ["no code"]})

    def inspect(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "inspect_ai._cli.main", "eval", "pkb/oneshot", "-T", "platform=cpu", "-T", "ranks=2",
             *words, "--model", model, "--log-dir", str(tmp_path / "logs"), "--display", "plain"],
            capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120,
        )  # fmt: skip

    done = inspect("-T", "problems=1,13")
    assert done.returncode == 0, done.stderr
    (log,) = (tmp_path / "logs").glob("*.eval")
    read = read_eval_log(str(log))
    assert {sample.id for sample in read.samples or ()} == {"01_allreduce-s0", "13_gemm_allreduce-s0"}
    unknown = inspect("-T", "problems=1,999")
    assert unknown.returncode != 0
    said = unknown.stdout + unknown.stderr
    assert "no problem is called" in said
    assert "999" in said
    assert "Traceback" not in said


def test_an_untimed_candidate_is_not_counted_as_slow() -> None:
    def value(verdict: str, timing: Any) -> Any:
        fields = json.loads((ROOT / "tests/data/verdicts" / f"{verdict}.json").read_text()) | {"timing": timing}
        return _score(VerdictDocument(fields), "", why="").value

    untimed = value("correct", None)
    assert untimed["correct"] == 1
    assert math.isnan(untimed["faster"])
    assert value("wrong", None) == {"correct": 0, "faster": 0}


def test_the_entry_point_names_a_module_with_our_tasks() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["inspect_ai"]
    module = import_module(declared["pkb"])
    assert {"oneshot", "agent", "scripted"} <= set(dir(module))


def test_one_evaluation_at_a_time_on_a_device_and_no_key_below(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOMEBODYS_API_KEY", "sk-not-for-candidates-0123456789")
    said: list[str] = []
    judge = Judge(said.append)
    got: list[Any] = []
    monkeypatch.setenv("PKB_LOCK_DIR", str(tmp_path / "locks"))
    with hold(["cpu"], wait_s=5):
        waiting = threading.Thread(target=lambda: got.append(judge.evaluate(ORDER)))
        waiting.start()
        deadline = time.monotonic() + 60
        while not any("waiting for cpu" in line for line in said):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        below = Path(f"/proc/{judge.client.pid}/environ").read_bytes()
        assert b"PATH=" in below
        assert b"not-for-candidates" not in below
        assert got == []
    waiting.join(60)
    assert got[0].verdict == "rejected"
    judge.close()
    with pytest.raises(JudgeFailed):
        judge.evaluate(ORDER)


def test_a_judge_that_is_killed_is_no_verdict_and_the_next_one_starts() -> None:
    def kill_at_inspection(what: str) -> None:
        if what.endswith(": inspect") and judge.client.pid:
            os.kill(judge.client.pid, signal.SIGKILL)

    judge = Judge(kill_at_inspection)
    with pytest.raises(JudgeFailed, match="ended"):
        judge.evaluate(ORDER)
    judge._progress = lambda what: None
    assert judge.evaluate(ORDER).verdict == "rejected"
    judge.close()


def test_names_that_look_like_secrets_stay_out() -> None:
    kept = without_secrets({"PATH": "x", "OPENAI_API_KEY": "k", "HF_TOKEN": "k", "PGPASSWORD": "k", "KEYS": "y"})
    assert kept == {"PATH": "x", "KEYS": "y"}


def judged(
    step: int, verdict: str = "correct", *, low: float = 0, decision: str = "same", moved: str = "custom"
) -> Judged:
    timing = {"decision": decision, "speedup": low, "speedup_low": low, "speedup_high": low} if low else None
    fields = {"verdict": verdict, "timing": timing, "communication": moved, "stage_seconds": {"build": 2.0}}
    return Judged(step, "", VerdictDocument(fields))


@pytest.mark.parametrize(
    ("steps", "best"),
    [
        ([judged(0, "wrong")], None),
        ([judged(0), judged(1, "race")], 0),
        ([judged(0, low=1.2, decision="faster"), judged(1, low=1.5, decision="unproven")], 0),
        ([judged(0, low=1.4, decision="faster"), judged(1, low=1.2, decision="faster")], 0),
        ([judged(0, low=1.2, decision="faster"), judged(1, low=1.4, decision="faster")], 1),
        ([judged(0, low=0.9, moved="library"), judged(1, low=0.5, decision="slower")], 1),
        ([judged(0), judged(1)], 1),
    ],
)
def test_the_best_kernel_is_kept(steps: list[Judged], best: int | None) -> None:
    attempt = an_attempt(Settings(model="x/y", case=Case("", "cpu", 2)))
    for one in steps:
        attempt._count(one)
    assert (attempt.best and attempt.best.step) == best
    assert attempt.seconds == 2.0 * len(steps)


@pytest.mark.parametrize(
    ("steps", "fresh"),
    [
        ([judged(0, "wrong")], False),
        ([judged(0, low=1.2), judged(1, "race")], True),
        ([judged(0, "wrong"), judged(1, low=1.2)], False),
        ([judged(0, low=1.2), judged(1, low=1.4)], True),
        ([judged(0), judged(1)], False),
    ],
    ids=["none", "not the last", "the only one", "the last is the fastest of two", "not timed"],
)
def test_the_best_of_several_times_is_measured_once_more(steps: list[Judged], fresh: bool) -> None:
    attempt = an_attempt(Settings(model="x/y", case=Case("", "cpu", 2)))
    for one in steps:
        attempt._count(one)
    assert attempt.needs_a_fresh_verdict is fresh


def an_attempt(settings: Settings) -> Attempt:
    items = items_of(settings, settings.tasks(settings.registry().select("1"), samples=1))
    work = Work(settings, items, journal=Journal(), judge=Judge(), progress=lambda what: None)
    return Attempt(work, items[0])


def test_budgets_end_an_attempt() -> None:
    from inspect_ai.model import ChatMessageAssistant

    for field, limit, words in (
        ("budget_tokens", 1500, "tokens"), ("budget_usd", 0.003, "dollars"), ("budget_seconds", 3, "seconds"),
        ("steps", 2, "answers"),
    ):  # fmt: skip
        attempt = an_attempt(
            Settings(model="x/y", case=Case("", "cpu", 2), price=Price(1, 1), **{field: limit})  # type: ignore[arg-type]
        )
        for _ in range(2):
            assert attempt.why_stop() == ""
            attempt.heard([ChatMessageAssistant(content="hm")], ModelReply(None, "stop", "", 2.0, 900, 100, 0.002))
        assert words in attempt.why_stop()
    with pytest.raises(UserError, match="prices"):
        Settings(model="x/y", budget_usd=1)


def test_pages_of_the_kit_are_there_and_nothing_else_is() -> None:
    for name in KIT_PAGES:
        assert len(kit_page(name, backend="cuda")) > 500
    assert "kit.barrier_pads(" in kit_page("kit", backend="cuda")
    assert "there is no page" in kit_page("../../judge/session.py", backend="cuda")


def test_a_fence_around_a_tools_argument_is_taken_off() -> None:
    assert as_file(f"```python\n{REJECTED}```") == REJECTED
    assert as_file("def solution(:") == "def solution(:\n"


def test_answers_can_be_judged_later(tmp_path: Path) -> None:
    model = script(tmp_path, {"01_allreduce": [f"```python\n{REJECTED}```"], "02_allgather": ["no code"]})
    place, runner = ["--store", str(tmp_path / "store")], CliRunner()
    asked = runner.invoke(
        app, ["generate", "1,2", "--model", model, "--backend", "triton", "--ranks", "2", "--size", "tiny", "--plan", "quick",
              "--platform", "cpu", "--no-eval", *place],
    )  # fmt: skip
    assert asked.exit_code == 0, asked.output
    with Reader(tmp_path / "store") as reader:
        (run,) = reader.runs()
        assert [task.state for task in reader.tasks(run.id)] == ["waiting", "done"]
        assert list(reader.evaluations([run.id])) == []
        assert run.state == "open"
    Path(model.removeprefix("scripted/")).write_text('{"*": ["asked again"]}')
    later = runner.invoke(app, ["generate", "--resume", "latest", "--json", "--out", str(tmp_path / "out"), *place])
    assert later.exit_code == 0, later.output
    document = json.loads(later.stdout)
    assert [task["evaluation"] and task["evaluation"]["verdict"] for task in document["tasks"]] == ["rejected", None]
    assert [task["answers"] for task in document["tasks"]] == [1, 1]
    assert (tmp_path / "out" / "01_allreduce_triton.py").read_text() == REJECTED


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate"], "which problems"),
        (["generate", "1", "--model", "openai-api/nokey/m"], "NOKEY_API_KEY"),
        (["generate", "1", "--model", "x/y", "--backend", "fortran", "--platform", "cpu"], "fortran"),
        (["generate", "1", "--model", "x/y", "--platform", "cpu", "--ranks", "999"], "ranks"),
        (["generate", "1", "--model", "x/y", "--platform", "moon", "--no-eval"], "moon"),
        (["agent", "1", "--model", "x/y", "--budget-usd", "1"], "--prices"),
        (["agent", "1", "--model", "x/y", "--steps", "0"], "steps"),
        (["agent", "--resume", "latest", "--model", "x/y"], "leave"),
    ],
)
def test_wrong_usage_is_one_line_and_leaves_no_run(arguments: list[str], words: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*arguments, "--store", str(tmp_path / "store")])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "store" / "pkb.db").exists()
