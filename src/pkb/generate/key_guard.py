"""Keeps keys out of everything that is written down: a server may repeat the key it was sent, in an error or in an answer.

The provider's own `generate` is wrapped, below the place where inspect logs, so that neither its logs nor our store ever see
what was there. Keys are the values of environment variables that look like secrets, and whatever has the form of a key.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pkb.store.secret_check import remove_secrets

if TYPE_CHECKING:
    from inspect_ai.model import Model


_GUARDED = "_pkb_guarded"


def guard_keys(model: "Model") -> "Model":
    """The same model; guarding it twice is guarding it once."""
    if getattr(model.api, _GUARDED, False):
        return model
    setattr(model.api, _GUARDED, True)
    inner: Callable[..., Awaitable[Any]] = model.api.generate

    async def generate(*arguments: Any, **named: Any) -> Any:
        try:
            result = await inner(*arguments, **named)
        except Exception as error:
            _clean_error(error)
            raise
        return tuple(map(_clean, result)) if isinstance(result, tuple) else _clean(result)

    model.api.generate = generate  # type: ignore[method-assign, assignment]
    return model


def _clean(part: Any) -> Any:
    if isinstance(part, Exception):
        _clean_error(part)
        return part
    text = part.model_dump_json()
    if remove_secrets(text) == text:
        return part
    return type(part).model_validate(remove_secrets(part.model_dump(mode="json")))


def _clean_error(error: BaseException) -> None:
    """In place: its class and status decide whether it is tried again."""
    seen: BaseException | None = error
    while seen is not None:
        seen.args = tuple(remove_secrets(item) if isinstance(item, str) else item for item in seen.args)
        for name in ("message", "body"):
            if isinstance(value := getattr(seen, name, None), str | dict | list):
                setattr(seen, name, remove_secrets(value))
        seen = seen.__cause__ or seen.__context__
