"""Has candidates judged one at a time, and waits for each verdict."""

import queue
import threading
from collections.abc import Callable

from pkb.judge.service.client import JudgeClient
from pkb.judge.service.messages import JudgeEvent, JudgeOrder
from pkb.types.document import VerdictDocument
from pkb.types.errors import UserError

Progress = Callable[[str], None]


class JudgeFailed(Exception):
    """The judge's process died or broke: no verdict, and nobody's fault but ours."""


class Judge:
    """Started at the first order. Threads may share it: they wait for one another."""

    def __init__(self, progress: Progress = lambda what: None) -> None:
        self._progress = progress
        self._one_at_a_time = threading.Lock()
        self._events: queue.Queue[JudgeEvent] = queue.Queue()
        self._closed = False
        self.client = JudgeClient(self._events.put)

    def evaluate(self, order: JudgeOrder) -> VerdictDocument:
        with self._one_at_a_time:
            if self._closed:
                raise JudgeFailed("the judge was closed")
            self.client.send(order)
            event = self._last_of(order)
        if event.what == "refused":
            raise UserError(event.text, event.fix)
        if event.document is None:
            raise JudgeFailed(f"no verdict ({event.what}): {event.text}")
        return event.document

    def cancel(self, order: JudgeOrder) -> None:
        """Whoever waits for it gets JudgeFailed."""
        self.client.cancel(order.id)

    def close(self) -> None:
        """Ends it, in the middle of an evaluation too; then the evaluation's caller gets JudgeFailed."""
        self._closed = True
        self.client.close()
        self._events.put(JudgeEvent("", "cancelled", "the judge was closed"))

    def _last_of(self, order: JudgeOrder) -> JudgeEvent:
        """The server bounds the order's time, and its end is an event too."""
        while True:
            event = self._events.get()
            if event.is_last and (self._closed or event.id == order.id):
                return event
            if event.what == "stage" and event.id == order.id:
                self._progress(f"{order.case.problem}: {event.text}")
