"""What went wrong with a provider, in a line: what to install, what to export, or what to wait for."""

import re
from typing import NamedTuple

from pkb.store.secret_check import remove_secrets
from pkb.types.errors import UserError

_MARKUP = re.compile(r"\[/?[a-z ]+\]")
_LONGEST = 400


class UserMistake(NamedTuple):
    """A failure that will repeat until the user changes something."""

    message: str
    fix: str


def explain_opening(name: str, error: Exception) -> UserError:
    """Why a model cannot be used at all. Providers raise whatever they like here, so the text decides."""
    text = _MARKUP.sub("", _words(getattr(error, "message", None) or error)).removeprefix("ERROR: ")
    if pip := re.search(r"pip install ([^\s`'\"]+)", text):
        return UserError(f"{name} needs a package that is not installed", f"pip install {pip[1]}")
    if missing := re.search(r"No ([A-Z0-9_]+(?:(?:,| or|, or) [A-Z0-9_]+)*) defined in the environment", text):
        first = missing[1].split()[0].rstrip(",")
        return UserError(f"{name} needs {missing[1]} in the environment", f"export {first}=...")
    if "not recognized" in text:
        return UserError(f"no provider is known for {name}", "docs/models.md lists how models are named")
    return UserError(f"cannot use {name}: {text[:_LONGEST]}", "see the provider's page of inspect-ai")


def explain_failure(name: str, error: BaseException) -> UserMistake | str:
    """Why no answer came: a sentence, or a mistake of the user's that every other request would meet as well."""
    cause = _innermost(error)
    status = next((code for e in (error, cause) if (code := _status(e)) is not None), None)
    said = _words(getattr(error, "provider_message", None) or getattr(cause, "message", None) or cause)[:_LONGEST]
    if status in (401, 403):
        return UserMistake(f"{name} refused the key ({status}): {said}", "export a key that is valid for it")
    if status == 404:
        return UserMistake(f"{name} is not there (404): {said}", "check the model's name and the base URL")
    if status == 429:
        return f"still rate limited after all retries: {said}"
    return f"{type(cause).__name__}{f' ({status})' if status else ''}: {said}"


def _innermost(error: BaseException) -> BaseException:
    """Behind the wrapper that says that all retries were used up."""
    attempt = getattr(error, "last_attempt", None)
    inner = attempt.exception() if attempt is not None else None
    return inner if isinstance(inner, BaseException) else error


def _status(error: BaseException) -> int | None:
    code = getattr(error, "status_code", None) or getattr(error, "code", None)
    return code if isinstance(code, int) else None


def _words(what: object) -> str:
    return " ".join(str(remove_secrets(str(what))).split())
