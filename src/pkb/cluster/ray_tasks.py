"""What runs on a machine of the cluster, inside a worker process of Ray. Text goes in and JSON text comes out."""

import json
import os
import queue
import traceback
from dataclasses import asdict
from typing import Any

from pkb.cluster.judge_client import JudgeServer
from pkb.cluster.orders import AskOrder, Event, JudgeOrder
from pkb.cluster.writing import Ask, write_candidate
from pkb.platforms.device_lock import LOCK_WAIT_S
from pkb.types.errors import UserError

_MARGIN_S = 120.0


class _Post:
    """The judge's server of this worker process. Ray uses a worker again, so torch is imported once, not once an order."""

    def __init__(self) -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        self.server = JudgeServer(self.events.put)
        self.devices = os.environ.get("CUDA_VISIBLE_DEVICES")


_post: _Post | None = None


def greet() -> dict[str, Any]:
    """What this machine can do, asked before it gets any work."""
    import pkb
    from pkb.platforms import registry

    facts = registry.detect()
    return {
        "version": pkb.__version__,
        "max_ranks": {name: fact.max_ranks for name, fact in facts.items() if fact.available},
        "hardware": {name: fact.hardware for name, fact in facts.items() if fact.available},
    }


def judge(order: JudgeOrder) -> str:
    """The final event of an order, as JSON. The server dies with this process, and with it all that it has started."""
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
            event = Event(order.id, "late", "the judge's server gave no answer")
        if event.id == order.id and event.what != "stage":
            return _text(event)


def write(order: AskOrder, ask: Ask | None) -> str:
    try:
        return _text(Event(order.id, "done", document=write_candidate(order, ask)))
    except UserError as error:
        return _text(Event(order.id, "refused", str(error)))
    except Exception as error:  # the process boundary
        return _text(Event(order.id, "broken", "".join(traceback.format_exception(error))[-2000:]))


def _text(event: Event) -> str:
    return json.dumps(asdict(event), default=str)
