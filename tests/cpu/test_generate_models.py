"""`ask`: retries, limits, costs, and what a user is told. Against a real server on this machine."""

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from model_server import FAKE_KEY, KEY_VARIABLE, MODEL, ModelServer, Refuse, Say, Script, Sleep, serve

from pkb.generate.models import ask
from pkb.generate.prices import Price, price_of
from pkb.generate.prompt import Prompt, compose
from pkb.problems import registry
from pkb.types.errors import UserError

CODE = "def solution(tensor):\n    return tensor\n"
BLOCK = f"```python\n{CODE}```\n"


@pytest.fixture(scope="module")
def prompt() -> Prompt:
    return compose(registry.get(1), backend="triton", ranks=2, size="tiny")


class Server:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def __call__(self, *said: Say | Refuse | Sleep) -> AbstractContextManager[ModelServer]:
        return self._running({"01_allreduce": said})

    @contextmanager
    def _running(self, script: Script) -> Iterator[ModelServer]:
        with serve(script) as model:
            self.monkeypatch.setenv("PKBTEST_BASE_URL", model.url)
            self.monkeypatch.setenv(KEY_VARIABLE, FAKE_KEY)
            yield model


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def test_a_rate_limit_is_tried_again_and_the_answer_has_its_price(server: Server, prompt: Prompt) -> None:
    with server(Refuse(429, "slow down"), Say(f"Look:\n{BLOCK}")) as model:
        answer = ask(MODEL, prompt, temperature=0.5, max_tokens=77, time_limit_s=60, price=Price(2.0, 10.0))
    assert answer.code == CODE
    assert (answer.problem, answer.stop_reason, answer.answered) == ("", "stop", True)
    assert (answer.tokens_in, answer.tokens_out) == (1000, 200)
    assert answer.cost_usd == pytest.approx((1000 * 2 + 200 * 10) / 1e6)
    assert model.asked("01_allreduce") == 2
    sent = model.requests[-1]
    assert [message["content"] for message in sent["messages"]] == [prompt.system, prompt.user]
    assert sent["temperature"] == 0.5
    assert 77 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
    assert model.keys == {f"Bearer {FAKE_KEY}"}
    said = json.loads(answer.transcript)
    assert said["prompt_sha256"] == prompt.sha256
    assert BLOCK in json.dumps(said["output"]).encode().decode("unicode_escape")


def test_two_questions_in_a_row_and_no_price_is_no_cost(server: Server, prompt: Prompt) -> None:
    with server(Say("first"), Say(BLOCK)):
        first, second = ask(MODEL, prompt), ask(MODEL, prompt)
    assert first.code is None
    assert "no code block" in first.problem
    assert second.code == CODE
    assert second.cost_usd is None


def test_a_cut_answer_says_so(server: Server, prompt: Prompt) -> None:
    with server(
        Say("```python\ndef solution(tensor):\n    ret", finish="length"), Say("I think that", finish="length")
    ):
        in_code, in_words = ask(MODEL, prompt), ask(MODEL, prompt)
    for answer in (in_code, in_words):
        assert answer.stop_reason == "max_tokens"
        assert answer.code is None
        assert "cut off" in answer.problem
        assert answer.answered


def test_a_silent_server_is_a_timeout(server: Server, prompt: Prompt) -> None:
    started = time.monotonic()
    with server(Sleep()):
        answer = ask(MODEL, prompt, time_limit_s=1.5)
    assert time.monotonic() - started < 15
    assert (answer.stop_reason, answer.answered, answer.code) == ("timeout", False, None)
    assert "1.5 s" in answer.problem


def test_a_server_that_stays_broken_is_an_error_after_its_retries(server: Server, prompt: Prompt) -> None:
    with server(Refuse(400, "the model is confused")) as model:
        answer = ask(MODEL, prompt, time_limit_s=60, retries=0)
    assert (answer.stop_reason, answer.answered) == ("error", False)
    assert "the model is confused" in answer.problem
    assert model.asked("01_allreduce") == 1


def test_a_refused_key_is_told_without_the_key(server: Server, prompt: Prompt) -> None:
    with server(Refuse(401, f"Incorrect API key provided: {FAKE_KEY}")), pytest.raises(UserError) as caught:
        ask(MODEL, prompt, time_limit_s=60)
    assert "refused the key (401)" in str(caught.value)
    assert FAKE_KEY not in str(caught.value)


def test_a_key_in_an_answer_is_taken_out(server: Server, prompt: Prompt) -> None:
    with server(Say(f"your key is {FAKE_KEY}\n{BLOCK}")):
        answer = ask(MODEL, prompt)
    assert answer.code == CODE
    assert FAKE_KEY not in answer.text
    assert FAKE_KEY.encode() not in answer.transcript


@pytest.mark.parametrize(
    ("model", "message", "fix"),
    [
        pytest.param(
            "anthropic/some-model",
            "needs",
            "pip install anthropic",
            marks=pytest.mark.skipif(find_spec("anthropic") is not None, reason="the package is installed"),
        ),
        (MODEL, KEY_VARIABLE, f"export {KEY_VARIABLE}=..."),
        ("nowhere/some-model", "no provider", "docs/models.md"),
        ("gpt", "names no model", "PROVIDER/MODEL"),
    ],
)
def test_what_is_missing_is_one_line(
    model: str, message: str, fix: str, prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(UserError) as caught:
        ask(model, prompt)
    assert message in caught.value.message
    assert fix in caught.value.fix
    assert "\n" not in str(caught.value)


def test_prices_come_from_a_file_and_only_from_there(tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text('["a/b"]\ninput = 1\noutput = 4\ncached_input = 0.5\n["a/c"]\ninput = "free"\noutput = 1\n')
    price = price_of("a/b", table)
    assert price.cost_usd(tokens_in=1_000_000, tokens_out=500_000, cached=400_000) == pytest.approx(0.6 + 0.2 + 2.0)
    with pytest.raises(UserError, match="no prices for a/d"):
        price_of("a/d", table)
    with pytest.raises(UserError, match="free"):
        price_of("a/c", table)
