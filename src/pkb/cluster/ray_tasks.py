"""What runs on a machine of the cluster, inside a worker process of Ray. Plain data goes in and comes out."""

import os
import queue
import traceback
from dataclasses import dataclass, field

from pkb.cluster.orders import AskEvent, AskOrder
from pkb.cluster.writing import Ask, write_candidate
from pkb.judge.service.client import JudgeClient
from pkb.judge.service.messages import JudgeEvent, JudgeOrder
from pkb.platforms.device_lock import LOCK_WAIT_S
from pkb.types.errors import UserError

_MARGIN_S = 120.0


class _Post:
    """The judge's server of this worker process. Ray uses a worker again, so torch is imported once, not once an order."""

    def __init__(self) -> None:
        self.events: queue.Queue[JudgeEvent] = queue.Queue()
        self.server = JudgeClient(self.events.put)
        self.devices = os.environ.get("CUDA_VISIBLE_DEVICES")


_post: _Post | None = None


@dataclass(frozen=True)
class Greeting:
    """What a machine can do."""

    version: str = ""
    max_ranks: dict[str, int] = field(default_factory=dict)
    """By platform, of those that it has."""
    hardware: dict[str, str] = field(default_factory=dict)


def greet() -> Greeting:
    """What this machine can do, asked before it gets any work."""
    import pkb
    from pkb.platforms import registry

    available = {name: facts for name, facts in registry.detect().items() if facts.available}
    return Greeting(
        version=pkb.__version__,
        max_ranks={name: facts.max_ranks for name, facts in available.items()},
        hardware={name: facts.hardware for name, facts in available.items()},
    )


def judge(order: JudgeOrder) -> JudgeEvent:
    """The last event of an order. The server dies with this process, and with it all that it has started."""
    global _post
    # Ray gives a worker other devices with every task; a server that was started with the old ones would keep them.
    if _post is not None and _post.devices != os.environ.get("CUDA_VISIBLE_DEVICES"):
        _post.server.close()
        _post = None
    _post = _post or _Post()
    _post.server.send(order)
    while True:
        try:
            event = _post.events.get(timeout=order.limit_s + LOCK_WAIT_S + _MARGIN_S)
        except queue.Empty:
            event = JudgeEvent(order.id, "late", "the judge's server gave no answer")
        if event.id == order.id and event.is_last:
            return event


def write(order: AskOrder, ask: Ask | None) -> AskEvent:
    try:
        return AskEvent(order.id, "done", answer=write_candidate(order, ask))
    except UserError as error:
        return AskEvent(order.id, "refused", error.message, error.fix)
    except Exception as error:  # the process boundary
        return AskEvent(order.id, "broken", "".join(traceback.format_exception(error))[-2000:])
