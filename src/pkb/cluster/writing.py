"""Asks a model for one candidate: the prompt is put together here, the model is somebody else's."""

import json
import traceback
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from pkb.cluster.orders import AskEvent, AskOrder, WrittenAnswer
from pkb.types.errors import UserError

Ask = Callable[..., Any]
"""ask(model, prompt, *, temperature, max_tokens, time_limit_s, retries, price) -> what `pkb.generate.models.ask` gives.
On a cluster it travels by its name."""


def carry_out(order: AskOrder, ask: Ask | None = None) -> AskEvent:
    """What became of the order: a provider's error is an event like any other."""
    try:
        return AskEvent(order.id, "done", answer=write_candidate(order, ask))
    except UserError as error:
        return AskEvent(order.id, "refused", error.message, error.fix)
    except Exception as error:  # the boundary of a thread here, of a process on a cluster
        return AskEvent(order.id, "broken", "".join(traceback.format_exception(error))[-2000:])


def write_candidate(order: AskOrder, ask: Ask | None = None) -> WrittenAnswer:
    """Without `ask`, the real models."""
    from pkb.generate.prompt import PROMPT_SIZE, compose
    from pkb.problems.registry import default_registry

    folder = Path(order.problems_folder) if order.problems_folder else None
    problem = default_registry().with_folder(folder).get(order.case.problem)
    case = order.case.resolve(
        problem=problem.stem, platform=order.case.platform, size=PROMPT_SIZE, dtype=problem.default_dtype
    )
    try:
        prompt = compose(
            problem, backend=order.backend, hardware=order.hardware, ranks=case.ranks, size=case.size, dtype=case.dtype,
            shots=order.shots, parts_folder=Path(order.parts_folder) if order.parts_folder else None,
        )  # fmt: skip
    except ImportError as error:
        raise UserError(f"prompts need {error.name}", "pip install 'pkb[generate]'") from None
    asking = partial(ask or real_models(), order.model, prompt, temperature=order.temperature,
                     max_tokens=order.max_tokens, time_limit_s=order.limit_s, retries=order.retries)  # fmt: skip
    if order.price:
        from pkb.generate.prices import price_from

        asking = partial(asking, price=price_from(order.price, where="the run's price"))
    answer = asking()
    said = {field.name: getattr(answer, field.name) for field in fields(WrittenAnswer)}
    if isinstance(said["transcript"], bytes):
        said["transcript"] = json.loads(said["transcript"])
    return WrittenAnswer(**said)


def real_models() -> Ask:
    try:
        from pkb.generate.models import ask
    except ImportError as error:
        raise UserError(f"models need {error.name}", "pip install 'pkb[generate]'") from None
    chosen: Ask = ask
    return chosen
