"""Three users, each from beginning to end, with the commands that they would type.

A researcher compares models (a server of chat completions on this machine, killed and resumed). A kernel engineer makes
mistakes on a laptop; the race found and fixed is docs/tutorial.md, which test_tutorial.py follows. A platform team has a
folder in upstream's form and a problem of its own; its Ray cluster is in test_cluster_ray.py. Candidates are such as are
judged by their text, so that no ranks are started: about 60 s of CPU together.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from model_server import FAKE_KEY, KEY_VARIABLE, MODEL, Say, Script, Sleep, serve
from typer.testing import CliRunner

from pkb.cli.main import app
from pkb.store import LOGS, Reader

REJECTED = "import pkb.judge.session\n\n\ndef solution(tensor):\n    return tensor\n"
NOT_PYTHON = "def solution(tensor)\n    return tensor\n"
NO_SOLUTION = "def soluton(tensor):\n    return tensor\n"
CASE = ["--platform", "cpu", "--ranks", "2", "--plan", "quick"]
LIMIT_S = 240


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PKB_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "store"


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "pkb.cli.main", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=dict(os.environ), start_new_session=True,
    )  # fmt: skip


def pkb(*words: str, status: int = 0) -> str:
    process = start(*words)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == status, f"{words}: {out}{err}"
    return out


def ask(*words: str) -> Any:
    return json.loads(pkb(*words, "--json", "-"))


def kill_when(process: subprocess.Popen[str], store: Path, done: int) -> None:
    """kill -9, as soon as so many tasks have their outcome."""
    give_up = time.monotonic() + LIMIT_S
    while True:
        assert time.monotonic() < give_up
        assert process.poll() is None, process.communicate()
        if (store / "pkb.db").is_file():
            with Reader(store) as reader:
                runs = reader.runs()
                if runs and reader.summary(runs[0]).tasks.get("done", 0) >= done:
                    break
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_a_researcher_compares_models(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prices.toml").write_text(f'["{MODEL}"]\ninput = 1.0\noutput = 10.0\n')
    script: Script = {
        "01_allreduce": [Say(f"```python\n{REJECTED}```\n")],
        "02_allgather": [Say("I cannot do that \x1b[2J.")],
        "03_broadcast": [Sleep(), Say(f"```python\n{REJECTED}```\n")],
    }
    with serve(script) as server:
        monkeypatch.setenv("PKBTEST_BASE_URL", server.url)
        monkeypatch.setenv(KEY_VARIABLE, FAKE_KEY)
        words = [
            "--model",
            MODEL,
            "--problems",
            "1-3",
            "--prices",
            "prices.toml",
            "--backend",
            "triton",
            "--name",
            "study",
        ]
        kill_when(start("run", *words, *CASE), store, done=2)
        (listed,) = ask("runs")
        assert (listed["state"], listed["outcomes"]) == ("interrupted", {"rejected": 1, "no_answer": 1, "waiting": 1})
        pkb("run", "--resume", "study")
        assert {stem: server.asked(stem) for stem in script} == {
            "01_allreduce": 1,
            "02_allgather": 1,
            "03_broadcast": 2,
        }
    (listed,) = ask("runs")
    (scored,) = ask("score", "study")["collections"]
    shown = ask("runs", "show", "study")
    assert listed["outcomes"] == shown["outcomes"] == scored["verdicts"]
    assert scored["verdicts"] == {"rejected": 2, "no_answer": 1}
    for name in ("tokens_in", "tokens_out", "cost_usd"):
        assert listed["spent"][name] == pytest.approx(scored[name])
        assert scored[name] > 0
    said = pkb("runs", "transcript", "study", "--problem", "2")
    assert "I cannot do that" in said
    assert "\x1b" not in said
    logs = list((store / LOGS / listed["id"]).iterdir())
    assert logs
    assert FAKE_KEY not in said
    pkb("report", "study", "--out", "site")
    assert (tmp_path / "site" / "index.html").is_file()
    pkb("runs", "delete", "study", "--yes")
    assert not logs[0].exists()


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (NO_SOLUTION, 1, "defines no function called solution"),
        (NOT_PYTHON, 1, "line 1"),
        (
            "import torch\n\n\ndef solution(tensor):\n    return torch.zeros(tensor.shape) + tensor\n",
            0,
            "line 5: torch.zeros without device=",
        ),
        (
            'from pkb import kit\n\nSOURCE = """\nint broken() {\n    return undeclared;\n}\n"""\n'
            "library = kit.build_cpp(SOURCE)\n\n\ndef solution(tensor):\n    return tensor\n",
            1,
            "line 5 of the candidate: ",
        ),
    ],
    ids=["misspelt solution", "not Python", "no device", "compile error"],
)
def test_a_kernel_engineer_makes_mistakes(tmp_path: Path, text: str, status: int, said: str) -> None:
    candidate = tmp_path / "1_allreduce_mine.py"
    candidate.write_text(text)
    done = CliRunner().invoke(app, ["check", str(candidate)])
    assert done.exit_code == status, done.output
    assert said in " ".join(done.stdout.split())


def test_a_platform_team_has_a_folder_and_a_problem_of_its_own(store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "solutions_cuda"
    for name, text in {
        "model-a/1_allreduce_cuda.py": REJECTED,
        "model-a/7_gemm_allreduce_cuda.py": NOT_PYTHON,  # upstream's old number: by its name it is 13
        "model-b/1_allreduce_triton.py": NO_SOLUTION,
        "model-b/2_allgather_cuda.py": REJECTED,
        "model-b/99_unknown_layer_cuda.py": REJECTED,
        "README.md": "not a candidate",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    told = pkb("runs", "import", "solutions_cuda", *CASE, "--no-timing", status=1)
    assert (
        "1 files have another problem's number; by name: model-a/7_gemm_allreduce_cuda.py is 13_gemm_allreduce" in told
    )
    assert "99_unknown_layer_cuda.py: refused" in told
    kill_when(start("run", "--resume", "solutions_cuda"), store, done=1)
    process = start("run", "--resume", "solutions_cuda", "--json", "-")
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    assert json.loads(out)["verdicts"] == {"rejected": 2, "compile_error": 1, "load_error": 1}
    assert "4/4" in err
    scored = ask("score", "solutions_cuda")  # the folder of that name holds no verdicts: the run is meant
    assert {one["collection"]: one["samples"] for one in scored["collections"]} == {"model-a": 2, "model-b": 2}

    problems = tmp_path / "problems"
    problems.mkdir()
    (problems / "p901_my_layer.py").write_text(
        "import torch.distributed as dist\n\nSIZES = {'tiny': {'n': 64}}\n\n\ndef inputs(draw):\n"
        "    return {'x': draw.normal('x', (draw.size['n'],))}\n\n\ndef solution(x):\n"
        "    total = x.clone()\n    dist.all_reduce(total)\n    return total\n"
    )
    (problems / "p902_unfinished.py").write_text("def solution(x:\n")
    own = tmp_path / "own"
    own.mkdir()
    (own / "901_my_layer_torch.py").write_text(REJECTED)
    assert "not known" in pkb("show", "901", "--problems-dir", "problems")
    pkb("run", "own", "--problems-dir", "problems", *CASE, "--name", "ours")
    (scored,) = ask("score", "ours", "--problems-dir", "problems")["collections"]
    assert scored["verdicts"] == {"rejected": 1}
