"""What is asked of the judge's server and what it says: plain data that crosses pipes and machines as lines of JSON."""

import base64
import json
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from pkb.types.case import Case
from pkb.types.document import VerdictDocument
from pkb.types.plan import MORE_S
from pkb.types.stock import Against

EVALUATION_LIMIT_S = 3600.0
"""What one evaluation may take from when it has its device; the judge bounds every stage itself, so only one that hangs comes
near it. Waiting for the device is not part of it: `platforms/device_lock.py` bounds that."""
MAX_LINE_BYTES = 64 << 20
"""A verdict with all its times has less than a megabyte."""
MAX_TEXT = 4000

Kind = Literal["build", "evaluate"]
What = Literal["began", "stage", "done", "lost", "late", "broken", "refused", "cancelled"]
UNDER_WAY: tuple[What, ...] = ("began", "stage")
"""Any other event is the last one of its order."""


class Garbled(Exception):
    """A line that is not a message."""


@dataclass(frozen=True, kw_only=True)
class JudgeOrder:
    """Build or evaluate one candidate. The case may have `auto` in it: it is settled where the judge runs."""

    id: str
    kind: Kind
    source: bytes
    filename: str
    case: Case
    timing: bool | None = None
    """None: where a time says something about speed."""
    against: Against = "baseline"
    problems_folder: str | None = None
    profile: bool = True
    call_limit_s: float = 60.0
    build_limit_s: float = 600.0
    limit_s: float = EVALUATION_LIMIT_S
    more_s: float = MORE_S
    cores: tuple[int, ...] = ()
    """Cores that it may use; empty means all."""
    devices: str | None = None
    """GPUs that it may use, as CUDA_VISIBLE_DEVICES names them; None: those of the judge's server."""
    lock_folder: str | None = None
    """Where it queues for its devices, in place of the machine's own queue: whoever sends it holds them, and lets several
    orders that time nothing share them."""
    alone: bool = False
    """Wait for a CPU as for a GPU, where others may evaluate on it at the same time and its cores are not shared out."""

    def encode(self) -> bytes:
        return _line({"order": asdict(self) | {"source": base64.b64encode(self.source).decode()}})


@dataclass(frozen=True)
class CancelOrder:
    """Ends a running order. The answer is that order's last event: `cancelled`, unless it was already over."""

    id: str

    def encode(self) -> bytes:
        return _line({"cancel": self.id})


@dataclass(frozen=True)
class JudgeEvent:
    """What became of an order.

    `began`: it has its device, and its time runs. `stage`: it goes on, or waits; `text` says where. `done`: an evaluation's
    `document` is the verdict, and a build has one if it has decided. The others have none: `lost`, the process or machine is
    gone; `late`, over its limit of time; `broken`, an exception that is our bug; `refused`, wrong usage, and `fix` says what
    to do; `cancelled`.
    """

    id: str
    what: What
    text: str = ""
    fix: str = ""
    document: VerdictDocument | None = None

    @property
    def is_last(self) -> bool:
        return self.what not in UNDER_WAY

    def encode(self) -> bytes:
        said = {"id": self.id, "what": self.what, "text": self.text[-MAX_TEXT:], "fix": self.fix[:MAX_TEXT]}
        return _line(said | {"document": None if self.document is None else self.document.fields})


def decode_request(line: bytes) -> JudgeOrder | CancelOrder:
    """Raises Garbled."""
    try:
        said = json.loads(line)
        if "cancel" in said:
            return CancelOrder(str(said["cancel"]))
        fields = said["order"]
        return JudgeOrder(**fields | {
            "source": base64.b64decode(fields["source"]), "cores": tuple(fields["cores"]), "case": Case(**fields["case"]),
        })  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Garbled(f"no order: {error}: {line[:80]!r}") from error


def decode_event(line: bytes) -> JudgeEvent:
    """Raises Garbled."""
    try:
        said = json.loads(line)
        document = said["document"]
        if said["what"] not in get_args(What) or not isinstance(document, dict | None):
            raise ValueError("an event of no known kind")
        text, fix = str(said["text"])[-MAX_TEXT:], str(said["fix"])[:MAX_TEXT]
        kept = None if document is None else VerdictDocument(document)
        return JudgeEvent(str(said["id"]), said["what"], text, fix, kept)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Garbled(f"no event: {error}: {line[:80]!r}") from error


def _line(message: object) -> bytes:
    return json.dumps(message, allow_nan=False, default=str).encode() + b"\n"
