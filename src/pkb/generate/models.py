"""Asks a model through inspect-ai: any provider it knows, and any server that speaks OpenAI's protocol.

`ask` is one question and its answer. What lies under it (`open_model`, `converse`) is what the one-shot and the agent solver
use inside an evaluation of inspect's, so that limits, retries, costs and the removal of keys are the same everywhere.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pkb.generate.answer import extract
from pkb.generate.key_guard import guard_keys
from pkb.generate.model_errors import UserMistake, explain_failure, explain_opening
from pkb.generate.prices import Price
from pkb.generate.prompt import Prompt
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, Model, ModelOutput
    from inspect_ai.tool import Tool

TIMEOUT = "timeout"
ERROR = "error"
NO_ANSWER = frozenset({TIMEOUT, ERROR})
"""Stop reasons that say that no answer came: nothing that the model can be blamed for. Ask again."""


@dataclass(frozen=True)
class Answer:
    """What a model said, and what of it can be judged."""

    text: str
    code: str | None
    """The candidate; None if the answer holds none."""
    problem: str
    """What is wrong with the answer, in words that a model can act on; empty exactly when there is code."""
    stop_reason: str
    """As inspect says it: `stop`, `max_tokens` (cut off), `model_length`, `content_filter`, `tool_calls`, ...; and `timeout` or
    `error` where no answer came (`answered` is False then)."""
    tokens_in: int | None
    tokens_out: int | None
    cost_usd: float | None
    """None where no prices were given."""
    seconds: float
    """From the question to the answer, waits for retries included."""
    transcript: bytes
    """JSON: the messages and the answer, without keys."""

    @property
    def answered(self) -> bool:
        return self.stop_reason not in NO_ANSWER


@dataclass(frozen=True)
class ModelReply:
    """What came back from one request: an output of inspect's, or why there is none."""

    output: "ModelOutput | None"
    stop_reason: str
    error: str
    seconds: float
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None


def ask(
    model: str,
    prompt: Prompt,
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
    time_limit_s: float = 600,
    retries: int = 4,
    price: Price | None = None,
) -> Answer:
    """One question. A rate limit or a lost connection is tried again with growing waits; a refused key is a UserError."""
    need_inspect()
    import anyio
    from inspect_ai.model import ChatMessageSystem, ChatMessageUser

    async def talk() -> ModelReply:
        opened = open_model(model, temperature=temperature, max_tokens=max_tokens, retries=retries)
        async with opened:  # closes the connections: the next call has another event loop
            return await converse(
                opened,
                [ChatMessageSystem(content=prompt.system), ChatMessageUser(content=prompt.user)],
                time_limit_s=time_limit_s,
                price=price,
            )

    return answer_from(anyio.run(talk), model=model, prompt=prompt)


def open_model(name: str, *, temperature: float | None, max_tokens: int | None, retries: int) -> "Model":
    """The model behind a name such as `openai/gpt-5` or `openai-api/SERVICE/MODEL`, or what to install or export first."""
    need_inspect()
    from inspect_ai.model import GenerateConfig, get_model

    import pkb.generate.scripted  # noqa: F401  (registers `scripted/FILE`, also where pkb is not installed)

    if "/" not in name.strip("/"):
        raise UserError(f"{name!r} names no model", "PROVIDER/MODEL, such as openai/gpt-5 or openai-api/SERVICE/MODEL")
    config = GenerateConfig(temperature=temperature, max_tokens=max_tokens, max_retries=retries)
    try:
        opened = get_model(name, config=config, memoize=False)
    except Exception as error:
        raise explain_opening(name, error) from error
    return guard_keys(opened)


async def converse(
    model: "Model",
    messages: "Sequence[ChatMessage]",
    *,
    time_limit_s: float,
    tools: "Sequence[Tool]" = (),
    price: Price | None = None,
) -> ModelReply:
    """Sends the messages and waits, never longer than the limit. A UserError (a refused key) concerns every later call too."""
    import anyio

    started = time.monotonic()
    try:
        with anyio.fail_after(time_limit_s):
            output = await model.generate(list(messages), tools=list(tools))
    except TimeoutError:
        seconds = time.monotonic() - started
        return ModelReply(None, TIMEOUT, f"no answer within {time_limit_s:g} s", seconds)
    except UserError:
        raise
    except Exception as error:  # the edge to providers, each with exceptions of its own; what it was is recorded
        what = explain_failure(str(model), error)
        if isinstance(what, UserMistake):
            raise UserError(what.message, what.fix) from error
        return ModelReply(None, ERROR, what, time.monotonic() - started)
    seconds = time.monotonic() - started
    reason = str(output.stop_reason) if output.choices else "unknown"
    usage = output.usage
    if usage is None:
        return ModelReply(output, reason, "", seconds)
    cached = usage.input_tokens_cache_read or 0
    tokens_in = usage.input_tokens + cached + (usage.input_tokens_cache_write or 0)
    cost = None
    if price is not None:
        cost = price.cost_usd(tokens_in=tokens_in, tokens_out=usage.output_tokens, cached=cached)
    return ModelReply(output, reason, "", seconds, tokens_in, usage.output_tokens, cost)


def answer_from(reply: ModelReply, *, model: str, prompt: Prompt) -> Answer:
    """The reply to a prompt, with the candidate taken out of its text."""
    text = reply.output.completion if reply.output is not None else ""
    code: str | None = None
    problem = reply.error
    if reply.output is not None:
        found = extract(text)
        code, problem = found.code, found.problem
        if code is None and reply.stop_reason in ("max_tokens", "model_length") and not found.truncated:
            problem = f"the answer was cut off at the limit of tokens: {problem}"
    transcript = {
        "model": model,
        "prompt_sha256": prompt.sha256,
        "messages": [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}],
        "output": None if reply.output is None else reply.output.model_dump(mode="json", exclude_none=True),
        "error": reply.error,
    }
    return Answer(
        text=text,
        code=code,
        problem=problem,
        stop_reason=reply.stop_reason,
        tokens_in=reply.tokens_in,
        tokens_out=reply.tokens_out,
        cost_usd=reply.cost_usd,
        seconds=round(reply.seconds, 3),
        transcript=json.dumps(_finite(transcript), ensure_ascii=False, allow_nan=False).encode("utf-8", "replace"),
    )


def _finite(value: Any) -> Any:
    """A provider's numbers may be NaN, which JSON has not."""
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def need_inspect() -> None:
    """inspect-ai brings anyio and everything else that is needed here."""
    try:
        import inspect_ai.model  # noqa: F401
    except ImportError as error:
        raise UserError("asking models needs inspect-ai", "pip install 'pkb[generate]'") from error
