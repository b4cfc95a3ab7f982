"""Works through the tasks of a run. This process alone writes the store; an executor, here or on other machines, does the work.

A task is claimed, its candidate written by a model if it has none yet, built ahead, evaluated, recorded. Every answer of a
model and every verdict is stored the moment it is there, so that a sweep that is killed loses only what was under way. When
all are judged, the best of several samples is measured once more (winners.py).
"""

import ast
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, Protocol

from pkb.candidates.backend import needs
from pkb.candidates.prebuild import find_calls
from pkb.candidates.source import parse
from pkb.cluster.orders import AskEvent, AskOrder, Executor, Order, WrittenAnswer
from pkb.cluster.settings import SweepSettings
from pkb.cluster.winners import AGAIN, winners
from pkb.judge.service.messages import JudgeEvent, JudgeOrder
from pkb.platforms.base import EMULATED_CUDA
from pkb.platforms.registry import create, resolve, traits
from pkb.store import CandidateFile, Run, Store, Task, Worker
from pkb.store.secret_check import remove_secrets
from pkb.types.case import AUTO
from pkb.types.errors import UserError
from pkb.types.processes import interrupt_later
from pkb.types.verdict import Verdict

TRIES = {"lost": 3, "late": 2, "broken": 2, "cancelled": 2, "harness": 2, "refused": 1}
"""How often a task may end so, before it has failed."""
AHEAD = 32
"""Answers of models that may wait to be evaluated while more are asked for."""
BUILT_AHEAD = 256
"""Candidates that may wait built for a seat while others are built: a hang on a GPU must not make builders idle."""
NOTHING_CAME = ("timeout", "error")
"""Stop reasons of an answer that never came: the provider's or the network's fault, so it is asked for again."""
RENEW_S = 300.0
RECLAIM_S = 30.0
LAST_S = 10.0
"""Before its budget is spent a sweep begins nothing more: most of what is under way is over by then."""
NO_SEAT_S = 600.0
"""How long a sweep waits for a machine when it has lost all of them."""
# A sweep that is killed is no fault of its tasks: each was in a process of its own, and deaths of those are counted here.
_ANY_NUMBER_OF_RESUMES = 1 << 30
Phase = Literal["ask", "build", "evaluate"]
PHASE_WORDS: dict[Phase, str] = {"ask": "asking the model", "build": "building", "evaluate": "judging"}


class Watcher(Protocol):
    """Shows how it goes."""

    def stage(self, task: Task, text: str) -> None: ...
    def judged(self, task: Task, verdict: str, detail: str) -> None: ...
    def failed(self, task: Task, why: str, *, again: bool) -> None: ...


@dataclass
class _Held:
    task: Task
    phase: Phase
    source: bytes = b""
    filename: str = ""
    order_id: str | None = None
    """None: it waits for somebody to do its phase."""
    ends: Counter[str] = field(default_factory=Counter)
    step: int = 0
    """Of its verdict: not 0 where a winner is measured again."""


class Sweep:
    def __init__(
        self,
        store: Store,
        run: Run,
        *,
        executor: Executor,
        settings: SweepSettings,
        watcher: Watcher,
        limit: int | None = None,
        budget_s: float | None = None,
    ) -> None:
        """`limit`: tasks that are begun; `budget_s`: seconds after which what is under way is given back and it ends."""
        self.store, self.run, self.executor, self.settings, self.watcher = store, run, executor, settings, watcher
        self.end_at = None if budget_s is None else time.monotonic() + budget_s
        self.me = Worker.here()
        self.left = limit
        self.held: dict[str, _Held] = {}
        self.queue: deque[_Held] = deque()
        self.orders: dict[str, _Held] = {}
        self.numbers = 0
        self.last_was_built = False
        """Whether the candidate before needed a build: the next one probably does too, and is worth claiming early."""
        self.winners: set[str] = set()
        """Tasks that were the fastest of several, and were taken up to be measured once more."""
        self.names = {candidate.sha: candidate.filename for candidate in store.candidates(run.id)}

    def work(self) -> None:
        """Until no task waits. However it ends, nothing is left running and what was held waits again."""
        renewed = reclaimed = seated = 0.0
        self.store.set_run_state(self.run.id, "open")
        try:
            while True:
                now = time.monotonic()
                if now - reclaimed > RECLAIM_S:
                    self.store.reclaim_dead(self.run.id, max_attempts=_ANY_NUMBER_OF_RESUMES)
                    reclaimed = now
                if now - renewed > RENEW_S:
                    for held in self.held.values():
                        self.store.renew(held.task, self.me)
                    renewed = now
                if self.end_at is not None and now > self.end_at - LAST_S:
                    self.left = 0
                    if now > self.end_at or not self.orders:
                        break
                self._claim()
                if not self.held and not self.orders and not (self.queue or self._take_up_winners()):
                    break
                if self.executor.seats or not seated:
                    seated = now
                elif now - seated > NO_SEAT_S:
                    raise UserError(f"no machine has been there for {NO_SEAT_S:.0f} s", "resume when there is one")
                self._hand_out()
                for event in self.executor.events(1.0):
                    self._on(event)
        finally:
            with interrupt_later():  # closing takes a second: Ctrl-C in it would leave tasks held and the run open
                self._end()

    def _end(self) -> None:
        self.executor.close()
        for held in self.held.values():
            self.store.release(held.task, self.me)
        self.held.clear()
        tasks = self.store.summary(self.run).tasks
        if tasks.get("waiting"):
            self.store.set_run_state(self.run.id, "interrupted")
        elif not tasks.get("claimed"):  # else another sweep is still at it, and says so itself
            self.store.set_run_state(self.run.id, "complete")

    # -- handing out --------------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        while self.left != 0:
            asking = sum(held.phase == "ask" for held in self.held.values())
            ahead = len(self.held) - asking
            room = max(1, self.executor.seats) + self.executor.builders + (AHEAD if asking else 0)
            if (
                self.last_was_built
                and sum(held.phase == "build" for held in self.held.values()) < self.executor.builders
            ):
                room += BUILT_AHEAD
            if asking >= self.executor.concurrency or ahead >= room:
                return
            task = self.store.claim(self.run.id, self.me)
            if task is None:
                return
            if self.left is not None:
                self.left -= 1
            self._take_up(task)

    def _take_up_winners(self) -> bool:
        """Each once: one that cannot be measured again keeps its first verdict."""
        if self.left == 0:
            return False
        for winner in winners(self.store, self.run):
            if winner.task.key in self.winners:
                continue
            self.winners.add(winner.task.key)
            held = _Held(winner.task, "evaluate", step=AGAIN)
            held.source = self.store.objects.get(winner.candidate_sha)
            held.filename = self.names.get(winner.candidate_sha) or f"{winner.task.problem}.py"
            self.queue.append(held)
        return bool(self.queue)

    def _take_up(self, task: Task) -> None:
        held = self.held[task.key] = _Held(task, "ask")
        sha = task.candidate_sha
        for step in self.store.steps(
            self.run.id, task.key
        ):  # the answer of an earlier start: paid for, not asked again
            if step.candidate_sha is None:
                self._no_answer(held, step.error)
                return
            sha = step.candidate_sha
        if sha is None:
            self.queue.append(held)
        else:
            self._candidate_is(held, self.store.objects.get(sha), self.names.get(sha) or f"{task.problem}.py")

    def _candidate_is(self, held: _Held, source: bytes, filename: str) -> None:
        held.source, held.filename = source, filename
        self.last_was_built = bool(self.executor.builders) and needs_build(source, platform=held.task.case.platform)
        held.phase = "build" if self.last_was_built else "evaluate"
        self.queue.append(held)

    def _hand_out(self) -> None:
        if self.end_at is not None and time.monotonic() > self.end_at - LAST_S:
            return
        busy = Counter(held.phase for held in self.orders.values())
        room = {
            "ask": self.executor.concurrency - busy["ask"],
            "build": self.executor.builders - busy["build"],
            "evaluate": self.executor.seats - busy["evaluate"],
        }
        for held in list(self.queue):
            if room[held.phase] > 0:
                room[held.phase] -= 1
                self.queue.remove(held)
                self.numbers += 1
                held.order_id = f"{self.numbers}:{held.task.key}"
                self.orders[held.order_id] = held
                self.watcher.stage(held.task, PHASE_WORDS[held.phase])
                self.executor.start(self._order(held, held.order_id))

    def _order(self, held: _Held, order_id: str) -> Order:
        task, settings = held.task, self.settings
        if held.phase == "ask":
            return AskOrder(
                id=order_id, model=task.collection, case=task.case, backend=task.backend, hardware=settings.hardware,
                temperature=settings.temperature, max_tokens=settings.max_tokens, shots=settings.shots,
                parts_folder=settings.parts_folder, retries=settings.retries, limit_s=settings.ask_limit_s,
                price=settings.prices.get(task.collection), problems_folder=settings.problems_folder,
            )  # fmt: skip
        limit_s = settings.evaluation_limit_s if held.phase == "evaluate" else settings.build_limit_s + 60
        return JudgeOrder(
            id=order_id, kind=held.phase, source=held.source, filename=held.filename, case=task.case,
            timing=settings.timing, against=settings.against, profile=settings.profile,
            problems_folder=settings.problems_folder, call_limit_s=settings.call_limit_for(task.case),
            build_limit_s=settings.build_limit_s, limit_s=limit_s, more_s=settings.more_s,
        )  # fmt: skip

    # -- what comes back ----------------------------------------------------------------------------------------------

    def _on(self, event: JudgeEvent) -> None:
        held = self.orders.get(event.id)
        if held is None:  # of an order that was given up
            return
        if not event.is_last:
            if event.what == "stage":
                self.watcher.stage(held.task, event.text)
            return
        del self.orders[event.id]
        held.order_id = None
        # A build that has decided nothing, whatever it said: the evaluation builds what is missing.
        if held.phase == "build" and event.document is None:
            held.phase = "evaluate"
            self.queue.append(held)
        elif held.step:
            self._measured_again(held, event)
        elif event.what != "done":
            if (
                held.phase == "ask" and event.what == "refused"
            ):  # it would be so for every task: a key or a name is wrong
                raise UserError(event.text, event.fix)
            self._again(held, event.what, f"{event.text} ({event.fix})" if event.fix else event.text)
        elif isinstance(event, AskEvent) and event.answer is not None:
            self._answered(held, event.answer)
        elif event.document is None:
            self._again(held, "broken", "there is no verdict in the judge's answer")
        elif event.document.verdict == Verdict.HARNESS_ERROR:
            self._again(held, "harness", event.document.detail)
        else:
            self.store.record_evaluation(self.run.id, held.task.key, event.document)
            del self.held[held.task.key]
            self.watcher.judged(held.task, event.document.verdict, event.document.detail)

    def _measured_again(self, held: _Held, event: JudgeEvent) -> None:
        task, document = held.task, event.document
        if event.what != "done" or document is None or document.verdict == Verdict.HARNESS_ERROR:
            why = document.detail if document else event.text
            self.watcher.failed(task, f"the winner was not measured again: {remove_secrets(why)}", again=False)
            return
        file = CandidateFile(source=held.source, filename=held.filename, origin=task.collection)
        self.store.record_evaluation(self.run.id, task.key, document, step=held.step, candidate=file)
        self.watcher.judged(task, document.verdict, f"the best of its samples, measured once more; {document.detail}")

    def _answered(self, held: _Held, answer: WrittenAnswer) -> None:
        task = held.task
        if answer.stop_reason in NOTHING_CAME:
            self._again(held, "broken", answer.problem)
            return
        name = f"{task.problem}_{task.backend}.py"
        file = None
        if answer.code is not None:
            file = CandidateFile(source=answer.code.encode(), filename=name, origin=task.collection)
        self.store.record_step(
            self.run.id, task.key, step=0, transcript=answer.transcript, candidate=file,
            tokens_in=answer.tokens_in, tokens_out=answer.tokens_out, cost_usd=answer.cost_usd,
            seconds=answer.seconds, stop_reason=answer.stop_reason or "", error=answer.problem or "",
        )  # fmt: skip
        if file is None:
            self._no_answer(held, answer.problem)
        else:
            self._candidate_is(held, file.source, name)

    def _no_answer(self, held: _Held, why: str) -> None:
        """The model's failure, not ours: the task is done, and scores count it."""
        self.store.finish(held.task, self.me)
        del self.held[held.task.key]
        self.watcher.judged(held.task, "no_answer", why)

    def _again(self, held: _Held, how: str, why: str) -> None:
        why = str(remove_secrets(why))  # a provider's error may quote what it was sent
        held.ends[how] += 1
        again = held.ends[how] < TRIES[how]
        self.watcher.failed(held.task, why, again=again)
        if again:
            self.queue.append(held)
        else:
            self.store.fail(held.task, self.me, error=f"{how}: {why}")
            del self.held[held.task.key]


def needs_build(source: bytes, *, platform: str = AUTO) -> bool:
    """Whether building ahead would do anything: starting a process to find out would cost more than most such builds. What
    the platform cannot run is not built: the judge says so without it."""
    try:
        if not find_calls(ast.parse(source)):
            return False
        return not needs(parse(source, path=Path("candidate.py"))) & _lacking(platform)
    except (SyntaxError, ValueError, RecursionError, MemoryError, UserError):
        return False


@cache
def _lacking(platform: str) -> frozenset[str]:
    """Of what candidates may need. A sweep's platform may be that of other machines: nothing is looked for there."""
    name = resolve(AUTO) if platform == AUTO else platform
    if traits(name).device != "cpu":
        return frozenset()
    return frozenset({"gpu"} if EMULATED_CUDA in create(name).facts().capabilities else {"gpu", "cuda"})
