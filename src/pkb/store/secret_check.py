"""Keeps keys out of the store: a run is meant to be handed around.

A configuration with a secret in it is refused, because whoever built it can leave it out. A transcript was paid for, so there
the value is taken out and the rest is kept. An error never repeats the value.
"""

import os
import re
from typing import Any

from pkb.types.errors import UserError

_KEY = re.compile(
    r"(^|[_.-])(api[_-]?key|secret([_-]?key)?|password|passwd|authorization|credentials?|private[_-]?key"
    r"|(access|auth|api|bearer|hf|github|session)[_-]?token)$|^token$",
    re.IGNORECASE,
)
# The forms in use; a digit is asked for where words with hyphens could look alike.
_VALUE = re.compile(
    r"\bsk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}|\b(ghp|gho|ghs|hf)_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{40,}"
    r"|\bxox[abp]-[A-Za-z0-9-]{20,}|\bAKIA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{30,}"
    r"|\bBearer\s+(?=[A-Za-z._~+/-]*\d)[A-Za-z0-9._~+/-]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*"
)
_VARIABLE = re.compile(r"(API_?KEY|TOKEN|SECRET|PASSWORD|SECRET_KEY|ACCESS_KEY)$", re.IGNORECASE)
_SHORTEST = 8
"""A shorter value of such a variable (`1`, `none`) would be found everywhere and is no key."""
REMOVED = "[secret removed]"


def refuse_secrets(config: Any, *, where: str = "config") -> None:
    """Raises UserError if a key or a value anywhere inside looks like a secret."""
    if isinstance(config, dict):
        for key, value in config.items():
            inside = f"{where}.{key}"
            if _KEY.search(str(key)) and isinstance(value, str) and value:
                raise UserError(f"{inside} looks like a secret, and a run must hold none", _FIX)
            refuse_secrets(str(key), where=inside)
            refuse_secrets(value, where=inside)
    elif isinstance(config, list | tuple):
        for index, value in enumerate(config):
            refuse_secrets(value, where=f"{where}[{index}]")
    elif isinstance(config, str):
        if _VALUE.search(config):
            raise UserError(f"the value of {where} looks like a key, and a run must hold none", _FIX)
        for variable, value in _secret_variables():
            if value in config:
                raise UserError(f"{where} holds the value of ${variable}, and a run must hold no secret", _FIX)


_FIX = "leave it out; name the environment variable instead, as in api_key_env"


def remove_secrets(document: Any) -> Any:
    """The same JSON with the values of this process's secret variables, and all that has the form of a key, taken out."""
    if isinstance(document, dict):
        return {remove_secrets(str(key)): remove_secrets(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [remove_secrets(item) for item in document]
    if not isinstance(document, str):
        return document
    for _, value in _secret_variables():
        document = document.replace(value, REMOVED)
    return _VALUE.sub(REMOVED, document)


def _secret_variables() -> list[tuple[str, str]]:
    return [(k, v) for k, v in os.environ.items() if _VARIABLE.search(k) and len(v) >= _SHORTEST]
