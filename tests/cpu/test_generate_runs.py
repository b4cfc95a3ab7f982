"""Runs of `pkb generate` and `pkb agent` from end to end: a server on this machine, real evaluations on the cpu platform."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from model_server import FAKE_KEY, KEY_VARIABLE, MODEL, Call, ModelServer, Refuse, Say, Script, Sleep, serve
from rich.console import Console

from pkb.analysis.outcomes import RunOutcome
from pkb.cli.demo import CANDIDATES, EXPECTED, EXPECTED_CUDA
from pkb.cli.panel import render
from pkb.generate.session import open_run, work_on
from pkb.generate.settings import Settings
from pkb.kit.emulated.gxx import find_gxx
from pkb.store import Run, Store
from pkb.types.case import Case
from pkb.types.document_versions import read_evaluation

RUNS_CUDA = not isinstance(find_gxx(), str)
"""On an emulated GPU: then the model answers in CUDA."""
RIGHT, WRONG_ON_ONE_RANK, *_ = EXPECTED_CUDA if RUNS_CUDA else EXPECTED
GOOD, WRONG = (CANDIDATES / RIGHT).read_text(), (CANDIDATES / WRONG_ON_ONE_RANK).read_text()
NOT_PYTHON = "import torch\n\ndef solution(tensor)\n    return tensor\n"
REJECTED = "import pkb.judge.session\n\n\ndef solution(tensor):\n    return tensor\n"
COMMON = ["--backend", "cuda", "--platform", "cpu", "--ranks", "2", "--plan", "quick"]


def block(code: str) -> str:
    return f"```python\n{code}```\n"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[ModelServer], None]:
    def point_to(server: ModelServer) -> None:
        monkeypatch.setenv("PKBTEST_BASE_URL", server.url)
        monkeypatch.setenv(KEY_VARIABLE, FAKE_KEY)
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        monkeypatch.setenv("OMP_NUM_THREADS", "1")

    return point_to


def begin(store: Store, kind: str, problems: str, **fields: object) -> tuple[Run, Settings]:
    settings = Settings(
        model=MODEL, backend="cuda", case=Case("", "cpu", 2, plan="quick"), **fields,  # type: ignore[arg-type]
    )  # fmt: skip
    tasks = settings.tasks(settings.registry().select(problems), samples=1)
    return store.create_run(kind, config=settings.to_dict(), tasks=tasks), settings  # type: ignore[arg-type]


def by_problem(outcomes: list[RunOutcome]) -> dict[int, RunOutcome]:
    return {one.task.problem_id: one for one in outcomes}


def files_with(secret: bytes, folder: Path) -> list[str]:
    """Every file below, unpacked where it is packed: objects are zlib, inspect's logs are zip archives."""
    found = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        texts = [data]
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                texts += [archive.read(name) for name in archive.namelist()]
        elif path.parent.parent.name == "objects":
            texts.append(zlib.decompress(data))
        if any(secret in text for text in texts):
            found.append(str(path))
    return found


def test_one_shot(tmp_path: Path, environment: Callable[[ModelServer], None]) -> None:
    script: Script = {
        "01_allreduce": [Say(f"First try:\n{block(REJECTED)}\nBetter:\n{block(GOOD)}")],
        "02_allgather": [Say(f"I would rather not. Your key is {FAKE_KEY}.")],
        "03_broadcast": [Refuse(429, "slow down"), Say("```python\ndef solution(ten", finish="length")],
        "04_reduce": [Sleep(), Say("now I answer, without code")],
        "05_scatter": [Refuse(400, f"bad request with {FAKE_KEY}"), Say(block(REJECTED))],
    }
    with serve(script) as server, Store(tmp_path / "store") as store:
        environment(server)
        run, settings = begin(store, "generate", "1-5", time_limit_s=8, parallel=5, retries=1)
        said: list[str] = []
        outcomes = by_problem(work_on(store, run, settings, progress=said.append))

        first = outcomes[1].last
        assert first is not None
        assert (first.verdict, first.step, first.tokens_out) == ("correct", 0, 200)
        assert store.source(first.candidate_sha or "") == GOOD  # the last of the two blocks
        for problem, words in ((2, "no code block"), (3, "cut off")):
            assert outcomes[problem].last is None
            assert outcomes[problem].task.state == "done"
            assert words in outcomes[problem].reason
        (cut,) = store.steps(run.id, outcomes[3].task.key)
        assert (cut.stop_reason, cut.candidate_sha) == ("max_tokens", None)
        assert outcomes[4].task.state == outcomes[5].task.state == "failed"
        assert "no answer within 8 s" in outcomes[4].reason
        assert "bad request" in outcomes[5].reason
        assert any("01_allreduce-s0: correct" in line for line in said)
        assert store.run(run.id).state == "complete"
        asked = {stem: server.asked(stem) for stem in script}

        # Resumed: only what failed is asked for again.
        again, settings = open_run(store, run.id, kind="generate")
        outcomes = by_problem(work_on(store, again, settings))
        assert [stem for stem in script if server.asked(stem) != asked[stem]] == ["04_reduce", "05_scatter"]
        assert outcomes[4].task.state == "done"
        assert outcomes[5].last is not None
        assert outcomes[5].last.verdict == "rejected"
        assert outcomes[1].last == first
        assert len(list((store.root / "logs" / run.id).glob("*oneshot*.eval"))) == 2

        # Keys: the server knows it, nothing that was written does.
        assert server.keys == {f"Bearer {FAKE_KEY}"}
    assert files_with(b"I would rather not", tmp_path) != []  # the search does look inside
    assert files_with(FAKE_KEY.encode(), tmp_path) == []


def test_an_agent_compiles_at_its_third_step_and_keeps_its_best(
    tmp_path: Path, environment: Callable[[ModelServer], None]
) -> None:
    script: Script = {
        "01_allreduce": [
            Call("submit_kernel", {"code": NOT_PYTHON}),
            Say("def solution(tensor)\n    return tensor\n"),
            Say(f"Now it is Python.\n{block(GOOD)}"),
            Call("submit_kernel", {"code": WRONG}),
        ]
    }
    with serve(script) as server, Store(tmp_path / "store") as store:
        environment(server)
        run, settings = begin(store, "agent", "1", steps=4)
        (outcome,) = work_on(store, run, settings)
        rows = [row for row in store.evaluations([run.id])]
        # One row a judged step, and at the end the best one again, since the last one judged was another.
        assert [(row.step, row.verdict) for row in rows] == [
            (0, "compile_error"), (2, "correct"), (3, "wrong"), (4, "correct"),
        ]  # fmt: skip
        assert outcome.last == rows[-1]
        assert rows[1].candidate_sha == rows[3].candidate_sha
        assert store.source(rows[3].candidate_sha or "") == GOOD
        steps = store.steps(run.id, outcome.task.key)
        assert [step.step for step in steps] == [0, 1, 2, 3]
        assert "no code block" in steps[1].error
        assert store.run(run.id).state == "complete"
        document = store.document(rows[2].document_sha)
        right = read_evaluation(store.document(rows[1].document_sha))
        assert bool(right.fidelity) == RUNS_CUDA, "a CUDA kernel was judged, on an emulated GPU"

    told = server.requests[1]["messages"][-1]
    assert told["role"] == "tool"
    assert "line 3" in str(told["content"])
    assert "no code block" in str(server.requests[2]["messages"][-1]["content"])
    assert "CORRECT" in str(server.requests[3]["messages"][-1]["content"])
    assert {tool["function"]["name"] for tool in server.requests[0]["tools"]} == {
        "submit_kernel", "read_problem", "read_kit_docs",
    }  # fmt: skip
    wrong_is_told_as_the_panel_shows_it(document)
    assert files_with(FAKE_KEY.encode(), tmp_path) == []


def wrong_is_told_as_the_panel_shows_it(document: dict[str, object]) -> None:
    """A real verdict about a wrong kernel: no number that a person would not be shown."""
    from pkb.generate.feedback import feedback

    out = io.StringIO()
    Console(file=out, width=2000).print(render(read_evaluation(document)))
    numbers = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
    text = feedback(read_evaluation(document))
    assert set(numbers.findall(text)) - set(numbers.findall(out.getvalue())) == set()
    assert text.count("expected") == 1


def command(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "pkb.cli.main", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def wait_until(condition: Callable[[], bool], *, limit_s: float = 90) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)


def test_a_killed_agent_goes_on_where_it_stood(tmp_path: Path, environment: Callable[[ModelServer], None]) -> None:
    script: Script = {
        "01_allreduce": [
            Call("submit_kernel", {"code": NOT_PYTHON}),
            Call("read_kit_docs", {"name": "pkb.cuh"}),
            Sleep(),
            Call("submit_kernel", {"code": REJECTED}),
        ]
    }
    place = str(tmp_path / "store")
    with serve(script) as server:
        environment(server)
        process = command("agent", "1", "--model", MODEL, *COMMON, "--steps", "3", "--store", place)
        wait_until(lambda: server.asked("01_allreduce") == 3)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
        with Store(tmp_path / "store") as store:
            (run,) = store.runs()
            assert store.summary(run).shown_state == "interrupted"
            (task,) = store.tasks(run.id)
            assert [step.step for step in store.steps(run.id, task.key)] == [0, 1]
            before = list(store.evaluations([run.id]))
            assert [row.verdict for row in before] == ["compile_error"]

            again, settings = open_run(store, "latest", kind="agent")
            (outcome,) = work_on(store, again, settings)
            rows = list(store.evaluations([run.id]))
            assert rows[0] == before[0]
            assert [(row.step, row.verdict) for row in rows] == [(0, "compile_error"), (2, "rejected")]
            assert outcome.spent.answers == 3
            assert store.run(run.id).state == "complete"
        assert server.asked("01_allreduce") == 4
    # The model sees the same conversation as before it was killed.
    unfinished, resumed = (request["messages"] for request in server.requests[2:])
    assert json.dumps(unfinished) == json.dumps(resumed)
    assert "pkb::" in str(resumed[-1]["content"]) or "__device__" in str(resumed[-1]["content"])


def test_ctrl_c_leaves_a_run_that_can_be_resumed(tmp_path: Path, environment: Callable[[ModelServer], None]) -> None:
    script: Script = {"01_allreduce": [Sleep()], "02_allgather": [Say("nothing")]}
    place = tmp_path / "store"
    with serve(script) as server:
        environment(server)
        process = command("generate", "1,2", "--model", MODEL, *COMMON, "--store", str(place), "--json")
        wait_until(lambda: server.asked("01_allreduce") == 1 and server.asked("02_allgather") == 1)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "--resume" in err
    assert "Traceback" not in err
    with Store(place) as store:
        (run,) = store.runs()
        assert run.state == "interrupted"
        assert [task.state for task in store.tasks(run.id)] == ["waiting", "done"]


def test_a_provider_that_fails_leaves_a_command_to_try_again(
    tmp_path: Path, environment: Callable[[ModelServer], None]
) -> None:
    with serve({"01_allreduce": [Refuse(400, "no")]}) as server:
        environment(server)
        place = str(tmp_path / "store")
        process = command("generate", "1", "--model", MODEL, *COMMON, "--store", place, "--retries", "0")
        out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "1 no verdict" in out
    assert "again: pkb generate --resume" in err
    assert err.rstrip().endswith(f"--store {place}")
