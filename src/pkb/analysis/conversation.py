"""What was said at a task, step by step: the prompt, every answer, what the model was told, and the verdicts.

A transcript is JSON that a model had a hand in: nothing in it is relied on, and what has no place here is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pkb.store import EvaluationRow, Reader, Step, Task

Role = Literal["system", "user", "assistant", "tool", "verdict", "note"]
_ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class Turn:
    step: int
    role: Role
    """`verdict` is the judge, `note` is ours: why an answer could not be judged."""
    text: str
    """As it was said; whoever shows it takes out what steers a terminal or a page."""


class Told(Protocol):
    """A task with what has come of it."""

    @property
    def task(self) -> Task: ...

    @property
    def steps(self) -> Sequence[Step]: ...

    @property
    def judged(self) -> Sequence[EvaluationRow]: ...


def conversation(reader: Reader, outcome: Told) -> Iterator[Turn]:
    """In the order in which it happened."""
    judged = {row.step: row for row in outcome.judged}
    for step in outcome.steps:
        yield from _said(step, reader.transcript(step.transcript_sha))
        if step.error:
            yield Turn(step.step, "note", step.error)
        if (row := judged.pop(step.step, None)) is not None:
            yield Turn(step.step, "verdict", f"{row.verdict}: {row.detail}")
    for number, row in sorted(judged.items()):  # of a file, or of the best kernel that was judged once more
        yield Turn(number, "verdict", f"{row.verdict}: {row.detail}")
    if not outcome.judged and outcome.task.error:
        yield Turn(len(outcome.steps), "note", outcome.task.error)


def _said(step: Step, transcript: object) -> Iterator[Turn]:
    if not isinstance(transcript, Mapping):
        return
    messages = transcript.get("messages")
    output = transcript.get("output")
    said = list(messages) if isinstance(messages, list) else []
    if isinstance(output, Mapping):  # a single question: the answer stands beside the messages
        choices = output.get("choices")
        said += [choice.get("message") for choice in choices or () if isinstance(choice, Mapping)]
    for message in said:
        if isinstance(message, Mapping) and message.get("role") in _ROLES:
            yield Turn(step.step, message["role"], _text(message))


def _text(message: Mapping[str, Any]) -> str:
    parts = [_content(message.get("content"))]
    for call in message.get("tool_calls") or ():
        if isinstance(call, Mapping):
            parts.append(_call(call))
    return "\n".join(part for part in parts if part)


def _content(content: object) -> str:
    """Text, or a list of parts: text, and what a provider calls reasoning."""
    if isinstance(content, str):
        return content
    found = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping):
            said = part.get("text") or part.get("reasoning")
            if isinstance(said, str):
                found.append(said if part.get("type") != "reasoning" else f"[reasoning] {said}")
    return "\n".join(found)


def _call(call: Mapping[str, Any]) -> str:
    arguments = call.get("arguments")
    given = dict(arguments) if isinstance(arguments, Mapping) else {}
    code = given.pop("code", None)
    words = ", ".join(f"{name}={value!r}" for name, value in given.items())
    head = f"calls {call.get('function')}({words})"
    return f"{head}\n{code}" if isinstance(code, str) else head
