"""Asks a model for one candidate: the prompt is put together here, the model is somebody else's."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from pkb.cluster.orders import AskOrder
from pkb.types.errors import UserError


class Answer(Protocol):
    """What a model said, as `pkb.generate.models.ask` gives it."""

    code: str | None
    """The candidate; None if the answer held none, and `problem` says why."""
    problem: str
    stop_reason: str
    tokens_in: int | None
    tokens_out: int | None
    cost_usd: float | None
    seconds: float
    transcript: Any
    """JSON, as bytes or read already."""


Ask = Callable[..., Any]
"""ask(model, prompt, *, temperature, max_tokens, time_limit_s, price) -> Answer. On a cluster it travels by its name."""


def write_candidate(order: AskOrder, ask: Ask | None = None) -> dict[str, Any]:
    """The answer as JSON. Without `ask`, the real models."""
    from pkb.generate.prompt import compose
    from pkb.generate.prompt_examples import examples
    from pkb.problems.registry import default_registry, load_folder

    folder = Path(order.problems_folder) if order.problems_folder else None
    problem = default_registry().plus(load_folder(folder) if folder else []).get(order.problem)
    dtype = problem.default_dtype if order.dtype == "auto" else order.dtype
    try:
        prompt = compose(
            problem, backend=order.backend, hardware=order.hardware, ranks=order.ranks, size=order.size, dtype=dtype,
            shots=min(1, len(examples(order.backend))),
        )  # fmt: skip
    except ImportError as error:
        raise UserError(f"prompts need {error.name}", "pip install 'pkb[generate]'") from None
    price: dict[str, Any] = {}
    if order.price:
        from pkb.generate.prices import price_from

        price = {"price": price_from(order.price, where="the run's price")}
    answer: Answer = (ask or real_models())(
        order.model, prompt, temperature=order.temperature, max_tokens=order.max_tokens, time_limit_s=order.limit_s,
        **price,
    )  # fmt: skip
    names = ("code", "problem", "stop_reason", "tokens_in", "tokens_out", "cost_usd", "seconds", "transcript")
    said = {name: getattr(answer, name) for name in names}
    if isinstance(said["transcript"], bytes):
        said["transcript"] = json.loads(said["transcript"])
    return said


def real_models() -> Ask:
    try:
        from pkb.generate.models import ask
    except ImportError as error:
        raise UserError(f"models need {error.name}", "pip install 'pkb[generate]'") from None
    chosen: Ask = ask
    return chosen
