"""One agent at one problem: what was spent, what was judged, which kernel is kept.

A step is one answer of the model. The answer is written down before anything is done about it, its verdict as soon as it is
there, so an attempt that was killed goes on where it stood: `history` gives the conversation back, and a kernel that was
judged is not judged again.
"""

from dataclasses import dataclass

from inspect_ai.model import ChatMessage, ChatMessageAssistant
from pydantic import TypeAdapter

from pkb.generate.answer import extract
from pkb.generate.feedback import feedback
from pkb.generate.models import ModelReply
from pkb.generate.tools import SUBMIT
from pkb.generate.work import Item, Work
from pkb.types.document import VerdictDocument
from pkb.types.document_versions import read_evaluation

_MESSAGES: TypeAdapter[list[ChatMessage]] = TypeAdapter(list[ChatMessage])


@dataclass(frozen=True)
class Judged:
    step: int
    code: str
    document: VerdictDocument

    @property
    def worth(self) -> tuple[bool, bool, float] | None:
        """None for one that is not correct. Faster beats correct; then a kernel of its own beats library calls; then the lower
        end of the speedup's interval counts, which luck moves least."""
        if not self.document.is_correct:
            return None
        speedup, own = self.document.speedup, self.document.communication != "library"
        return speedup is not None and speedup.decision == "faster", own, speedup.low if speedup else 0.0


class Attempt:
    def __init__(self, work: Work, item: Item) -> None:
        self.work, self.item = work, item
        self.step = -1
        """Of the last answer."""
        self.tokens = 0
        self.usd = 0.0
        self.seconds = 0.0
        self.judged: list[Judged] = []
        self.best: Judged | None = None
        self.stop_reason = ""
        self.empty_answers = 0
        """In a row, that neither handed anything in nor called a tool."""
        self._recorded = dict(work.journal.documents(item.task))
        self._said = 0
        """How many messages are in the journal."""
        self._submitted_at = -1

    def history(self) -> list[ChatMessage]:
        """The conversation up to the last recorded answer; empty at the first start."""
        messages: list[ChatMessage] = []
        for step in self.work.journal.steps(self.item.task):
            self.step = step.step
            self.stop_reason = step.stop_reason
            self._spend(tokens=(step.tokens_in or 0) + (step.tokens_out or 0), usd=step.cost_usd, seconds=step.seconds)
            messages += _MESSAGES.validate_python(self.work.journal.transcript(step)["messages"])
            code = self.work.journal.code(step)
            if code is not None and step.step in self._recorded:
                self._count(Judged(step.step, code, self._recorded[step.step]))
        self._said = len(messages)
        return messages

    def heard(self, messages: list[ChatMessage], reply: ModelReply) -> None:
        """The last of the messages is a new answer: written down with what came before it."""
        answer = messages[-1]
        assert isinstance(answer, ChatMessageAssistant)
        self.step += 1
        self.stop_reason = reply.stop_reason
        self._spend(tokens=(reply.tokens_in or 0) + (reply.tokens_out or 0), usd=reply.cost_usd, seconds=reply.seconds)
        code, problem = handed_in(answer)
        new = _MESSAGES.dump_python(messages[self._said :], mode="json", exclude_none=True)
        transcript = {"model": self.work.settings.model, "messages": new}
        self.work.journal.answered(self.item.task, self.step, reply, transcript=transcript, code=code, problem=problem)
        self._said = len(messages)

    async def submit(self, code: str) -> str:
        """Has the kernel of this step judged, once, and says what was found."""
        if self._submitted_at == self.step:
            return "only one kernel an answer is judged; this one was not"
        self._submitted_at = self.step
        code = as_file(code)
        document = self._recorded.get(self.step)
        if document is None:
            what = f"judging answer {self.step + 1} of at most {self.work.settings.steps}"
            document = await self.work.judge(self.item, code, what=what)
            self.work.journal.judged(self.item.task, self.step, document, done=False)
            self._count(Judged(self.step, code, document))
        return f"{feedback(read_evaluation(document.fields))}\n\n{self.standing()}"

    def standing(self) -> str:
        best = (
            f"the best so far is answer {self.best.step + 1}: {self.best.document.in_brief}"
            if self.best
            else ("no kernel of yours is correct so far")
        )
        return f"(answer {self.step + 1} of {self.work.settings.steps}; {best})"

    def why_stop(self) -> str:
        """Which limit is reached; empty while none is."""
        settings = self.work.settings
        for spent, limit, what in (
            (self.step + 1, settings.steps, "answers"),
            (self.tokens, settings.budget_tokens, "tokens"),
            (self.usd, settings.budget_usd, "US dollars"),
            (self.seconds, settings.budget_seconds, "seconds"),
        ):
            if limit is not None and spent >= limit:
                return f"{spent:.6g} of {limit:g} {what} used"
        if self.stop_reason == "model_length":
            return "the conversation fills the model's context"
        return ""

    @property
    def needs_a_fresh_verdict(self) -> bool:
        """Whether the best kernel is to be judged once more: another one was judged last, or its time is the best of several,
        which is partly luck."""
        timed = [judged for judged in self.judged if judged.worth is not None and judged.document.speedup is not None]
        return self.best is not None and (self.judged[-1] is not self.best or len(timed) > 1)

    def _count(self, judged: Judged) -> None:
        self.judged.append(judged)
        self.seconds += judged.document.seconds
        if judged.worth is not None and (self.best is None or judged.worth >= (self.best.worth or judged.worth)):
            self.best = judged

    def _spend(self, *, tokens: int, usd: float | None, seconds: float | None) -> None:
        self.tokens += tokens
        self.usd += usd or 0.0
        self.seconds += seconds or 0.0


def handed_in(answer: ChatMessageAssistant) -> tuple[str | None, str]:
    """The kernel in an answer, by a tool's call or in a code block; and, without any call, why there is none."""
    for call in answer.tool_calls or ():
        if call.function == SUBMIT and isinstance(call.arguments.get("code"), str):
            return as_file(call.arguments["code"]), ""
    if answer.tool_calls:
        return None, ""
    found = extract(answer.text)
    return found.code, found.problem


def as_file(code: str) -> str:
    """A tool's argument is the file itself; some models fence it all the same. What is no Python is for the judge to say."""
    fenced = extract(code).code if "```" in code or "~~~" in code else None
    return fenced if fenced is not None else code.rstrip("\n") + "\n"
