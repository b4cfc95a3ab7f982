"""What runs on a machine of the cluster, inside a worker process of Ray. Plain data goes in and comes out."""

import os
import queue
from dataclasses import dataclass, field

from pkb.judge.service.client import JudgeClient
from pkb.judge.service.messages import JudgeEvent, JudgeOrder
from pkb.platforms.device_lock import LOCK_WAIT_S

_MARGIN_S = 120.0


class SeatWorker:
    """A seat: an actor that keeps a judge's server, so that torch is imported once. Ray gives it its GPUs for good."""

    def __init__(self) -> None:
        self._events: queue.Queue[JudgeEvent] = queue.Queue()
        self._server = JudgeClient(self._events.put)

    def hello(self) -> bool:
        return True

    def evaluate(self, order: JudgeOrder) -> JudgeEvent:
        """The last event of an order. The server dies with this process, and with it all that it has started."""
        self._server.send(order)
        while True:
            try:
                event = self._events.get(timeout=order.limit_s + LOCK_WAIT_S + _MARGIN_S)
            except queue.Empty:
                event = JudgeEvent(order.id, "late", "the judge's server gave no answer")
            if event.id == order.id and event.is_last:
                return event


_builder: SeatWorker | None = None


@dataclass(frozen=True)
class Greeting:
    """What a machine can do."""

    sources: str = ""
    """The hash of its pkb's files."""
    software: dict[str, str] = field(default_factory=dict)
    max_ranks: dict[str, int] = field(default_factory=dict)
    """By platform, of those that it has."""
    hardware: dict[str, str] = field(default_factory=dict)


def greet(gpus: int) -> Greeting:
    """What this machine can do with as many GPUs as Ray has there, asked before it gets any work."""
    from pkb.cluster.fingerprint import software, sources_hash
    from pkb.platforms import registry

    _see_gpus()
    found = {name: facts for name, facts in registry.detect().items() if facts.available}
    most = {
        name: facts.max_ranks if facts.shares_device else min(facts.max_ranks, gpus)
        for name, facts in found.items()
        if gpus or registry.traits(name).device == "cpu"
    }
    return Greeting(sources_hash(), software(), most, {name: found[name].hardware for name in most})


def build(order: JudgeOrder) -> JudgeEvent:
    """A worker that Ray uses again has its server already."""
    global _builder
    _see_gpus()
    _builder = _builder or SeatWorker()
    return _builder.evaluate(order)


def _see_gpus() -> None:
    """Ray hides all GPUs from a task that reserves none; what to build for, and what a machine can do, is a matter of those
    that are there."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        del os.environ["CUDA_VISIBLE_DEVICES"]
