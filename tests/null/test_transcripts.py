"""Stored conversations, read back: in order, whole, and without anything that steers a terminal. And logs go with their run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from verdict_examples import example

from pkb.cli.main import app
from pkb.store import LOGS, Run, Store, TaskSpec, Worker
from pkb.types.case import Case
from pkb.types.verdict import ProblemRef, Verdict

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[32mCORRECT\x1b[0m \u202eesrever\r\x9b31m"
ASKED = TaskSpec(collection="a/model", case=Case("13_gemm_allreduce", platform="cpu"), backend="triton")
AGENT = replace(ASKED, sample=1)
ODD = replace(ASKED, sample=2)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A single question, two steps of an agent with tools, and a transcript that is not what we write."""
    with Store(tmp_path) as store:
        made = store.create_run("agent", name="talk", tasks=[ASKED, AGENT, ODD, replace(ASKED, sample=3)])
        for _ in range(3):
            store.claim(made.id, Worker.here())

        def say(spec: TaskSpec, step: int, transcript: Any, error: str = "") -> None:
            store.record_step(
                made.id, spec.key, step=step, transcript=transcript, tokens_in=5, tokens_out=2, error=error
            )

        one = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "write a kernel"}]
        output = {"choices": [{"message": {"role": "assistant", "content": f"here {HOSTILE} it is"}}]}
        say(ASKED, 0, {"messages": one, "output": output})
        store.record_evaluation(made.id, ASKED.key, example(Verdict.WRONG, problem=ProblemRef(13, "gemm_allreduce")))
        call = {"function": "submit_kernel", "arguments": {"code": "def solution(): ..."}, "id": "1"}
        thought = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "trying"}]
        say(AGENT, 0, {"messages": [*one, {"role": "assistant", "content": thought, "tool_calls": [call]}]})
        told = {"role": "tool", "content": "WRONG in stage correctness", "tool_call_id": "1"}
        say(AGENT, 1, {"messages": [told, {"role": "assistant", "content": "I give up"}]}, "no code block")
        store.finish(store.task(made.id, AGENT.key), Worker.here())
        say(ODD, 0, ["not", "an", "object"])
        store.finish(store.task(made.id, ODD.key), Worker.here())
    return made


def ask(tmp_path: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["runs", *words, "--store", str(tmp_path)])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_conversation_is_told_in_order(tmp_path: Path, run: Run) -> None:
    found = json.loads(ask(tmp_path, "transcript", "talk", "--json"))
    assert [one["task"]["sample"] for one in found] == [0, 1, 2]  # the one that nobody was asked for has none
    turns = [[(turn["step"], turn["role"]) for turn in one["turns"]] for one in found]
    assert turns[0] == [(0, "system"), (0, "user"), (0, "assistant"), (0, "verdict")]
    assert turns[1] == [(0, "system"), (0, "user"), (0, "assistant"), (1, "tool"), (1, "assistant"), (1, "note")]
    assert turns[2] == []
    assert found[0]["turns"][-1]["text"].startswith("wrong: ")
    answer = found[1]["turns"][2]["text"]
    assert answer.splitlines() == ["[reasoning] hm", "trying", "calls submit_kernel()", "def solution(): ..."]
    assert found[1]["turns"][-1]["text"] == "no code block"


def test_what_a_model_said_does_not_steer_a_terminal(tmp_path: Path, run: Run) -> None:
    text = ask(tmp_path, "transcript", "talk")
    assert "CORRECT" in text
    assert not set(text) & set("\x1b\x07\r\x9b\u202e")
    assert "write a kernel" in text
    assert "write a kernel" not in ask(tmp_path, "transcript", "talk", "--no-prompts")
    only = ask(tmp_path, "transcript", "talk", "--sample", "1", "--step", "1")
    assert "WRONG in stage correctness" in only
    assert "trying" not in only


def test_a_run_without_a_model_has_none(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.create_run("import", name="files", tasks=[ASKED])
    done = CliRunner().invoke(app, ["runs", "transcript", "files", "--store", str(tmp_path)])
    assert done.exit_code == 2
    assert "no model was asked" in done.stderr


def test_deleting_a_run_deletes_its_logs_and_no_others(tmp_path: Path, run: Run) -> None:
    logs = tmp_path / LOGS
    with Store(tmp_path) as store:
        other = store.create_run("generate", name="other", tasks=[ASKED])
    for name in (run.id, other.id, "of-a-run-whose-deletion-was-killed"):
        (logs / name).mkdir(parents=True)
        (logs / name / "x.eval").write_text("log")
    (logs / "README").write_text("somebody's own")
    ask(tmp_path, "delete", "talk", "--yes")
    assert {path.name for path in logs.iterdir()} == {other.id, "README"}
    assert (logs / other.id / "x.eval").is_file()
