"""The whole published protocol as one command, against a model server on this machine; and what it says before it starts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from model_server import FAKE_KEY, KEY_VARIABLE, MODEL, Call, ModelServer, Say, Script, serve

from pkb.analysis.plateau import PlateauPoint, StepOutcome, plateau
from pkb.cluster.protocol import ANSWER_TOKENS, CHARACTERS_A_TOKEN, FEEDBACK_TOKENS, estimate, judge_words, total
from pkb.generate.prices import Price
from pkb.store import Store

NOT_PYTHON = "def solution(tensor)\n    return tensor\n"
NO_SOLUTION = "answer = 42\n"
REJECTED = "import pkb.judge.session\n\n\ndef solution(tensor):\n    return tensor\n"
COMMON = ["--problems", "1", "--samples", "2", "--steps", "2", "--backend", "triton", "--platform", "cpu", "--ranks", "2",
          "--plan", "quick"]  # fmt: skip


def block(code: str) -> str:
    return f"```python\n{code}```\n"


def protocol(server: ModelServer, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PKBTEST_BASE_URL": server.url, KEY_VARIABLE: FAKE_KEY, "XDG_DATA_HOME": str(folder / "data"), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [
        sys.executable,
        "-m",
        "pkb.cli.main",
        "protocol",
        "--model",
        MODEL,
        *COMMON,
        "--store",
        str(folder / "store"),
    ]
    return subprocess.run([*command, *more], env=environment, capture_output=True, text=True, timeout=240, check=False)


def test_the_whole_protocol_and_again(tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai")
    script: Script = {
        "01_allreduce": [
            Say(block(REJECTED)), Say(block(REJECTED)),
            Call("submit_kernel", {"code": NO_SOLUTION}), Call("submit_kernel", {"code": NOT_PYTHON}), Say("enough"),
        ]
    }  # fmt: skip
    (tmp_path / "prices.toml").write_text(f'["{MODEL}"]\ninput = 1.0\noutput = 10.0\n')
    with serve(script) as server:
        first = protocol(server, tmp_path, "--prices", str(tmp_path / "prices.toml"))
        assert first.returncode == 0, first.stderr
        assert "4 answers, at most 7 verdicts" in first.stderr
        assert "how long one takes here is not known yet" in first.stderr
        assert "US dollars" in first.stderr
        assert "nothing was asked yet" in first.stderr
        assert server.requests == []
        second = protocol(server, tmp_path, "--yes")
        assert second.returncode == 0, second.stderr
        assert "solved after 1, 2 steps: 0, 0" in second.stdout
        asked = len(server.requests)
        third = protocol(server, tmp_path, "--yes")
        assert third.returncode == 0, third.stderr
        assert len(server.requests) == asked, "what is done is not asked again"
        assert "protocol-samples: 2 of 2 tasks are done" in third.stderr
        assert re.search(
            r"up to 7 verdicts, \d+\.\d hours one by one, by the \d+\.\d s of \d stored ones", third.stderr
        )
        runs = re.search(r"pkb report (protocol-samples protocol-agent-\S+) --store", third.stderr)
        assert runs is not None
        for more in (("--model", f"{MODEL}-other"), ("--steps", "3"), ("--hardware", "h200x8")):
            other = protocol(server, tmp_path, "--yes", *more)
            assert other.returncode == 2, more
            assert "was begun with other" in other.stderr, more
        assert len(server.requests) == asked, "a run that holds something else is not taken for it"
    with Store(tmp_path / "store") as store:
        kinds = {run.name.partition("-")[2].partition("-")[0]: run for run in store.runs()}
        assert set(kinds) == {"samples", "agent"}
        samples = sorted(row.verdict for row in store.evaluations([kinds["samples"].id]))
        assert samples == ["rejected", "rejected"]
        assert [row.verdict for row in store.evaluations([kinds["agent"].id])][:2] == ["load_error", "compile_error"]


def test_what_cannot_run_is_left_out_before_anything_is_paid_for(tmp_path: Path) -> None:
    """Samples left problem 51 out, which does not run with 2 ranks, and then the agents could not begin for it."""
    pytest.importorskip("inspect_ai")
    samples, agent = [Say(block(REJECTED))] * 2, Call("submit_kernel", {"code": NO_SOLUTION})
    script: Script = {"01_allreduce": [*samples, agent, Say("enough")]}
    with serve(script) as server:
        done = protocol(server, tmp_path, "--problems", "1,51", "--yes")
    assert done.returncode == 0, done.stderr
    assert "left out: problem 51" in done.stderr
    assert "4 answers" in done.stderr


def test_the_estimate_needs_no_gpu(tmp_path: Path) -> None:
    """Also where a store exists."""
    pytest.importorskip("inspect_ai")
    with Store(tmp_path / "store"), serve({}) as server:
        told = protocol(server, tmp_path, "--platform", "virtual")
        assert told.returncode == 0, told.stderr
        assert "4 answers" in told.stderr


def test_the_estimate_counts_what_is_sent_again() -> None:
    found = estimate("m", [3500, 7000], samples=3, steps=2, price=Price(1.0, 10.0))
    prompts = round(3500 / CHARACTERS_A_TOKEN) + round(7000 / CHARACTERS_A_TOKEN)
    assert (found.answers, found.verdicts) == (2 * 5, 2 * 9)
    assert found.tokens_out == 10 * ANSWER_TOKENS
    assert found.tokens_in == 5 * prompts + 2 * (ANSWER_TOKENS + FEEDBACK_TOKENS)
    assert found.cost_usd == pytest.approx((found.tokens_in + 10 * found.tokens_out) / 1e6)
    free = estimate("m", [1], samples=1, steps=0, price=None)
    assert "no prices" in free.words
    assert free.verdicts == 1
    assert total([found, found]).cost_usd == pytest.approx(2 * (found.cost_usd or 0))
    assert total([found, free]).cost_usd is None, "a sum without one of its parts is no sum"
    assert total([found, free]).answers == 11


def test_the_judges_time_is_that_of_verdicts_that_are_there() -> None:
    assert "not known yet" in judge_words(100, [])
    told = judge_words(900, [{"stage_seconds": {"build": 2.0, "start": 4.0}}, {"stage_seconds": {"inspect": 2.0}}, {}])
    assert told == "judging: up to 900 verdicts, 0.7 hours one by one, by the 2.7 s of 3 stored ones"


def test_a_plateau_never_falls() -> None:
    outcomes = [StepOutcome(1, 0, False, False), StepOutcome(1, 1, True, False), StepOutcome(1, 2, False, False),
                StepOutcome(2, 2, True, True), StepOutcome(3, 1, False, True)]  # fmt: skip
    assert plateau(outcomes) == [PlateauPoint(1, 0, 0), PlateauPoint(2, 1, 0), PlateauPoint(3, 2, 1)]
    assert plateau([]) == []
