"""The judge as a process of its own: a request a line on standard input, progress and the verdict on standard output.

`Judge` (judging.py) starts it. It is apart from the process that talks to models for three reasons: an evaluation blocks, it
must be stoppable at any moment, and no candidate may run below a process that has a provider's key in its environment.

When standard input closes, because the other side is done, was interrupted or was killed, an evaluation in progress is
interrupted as by Ctrl-C, and cleans up.
"""

import contextlib
import json
import os
import queue
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

from pkb.types.case import Case
from pkb.types.errors import UserError

Say = Callable[[dict[str, Any]], None]


def main() -> None:
    # What a library prints must not end up between our lines.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
            _serve(answers)


def _serve(answers: IO[str]) -> None:
    requests: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message, allow_nan=False, default=str) + "\n")
        answers.flush()

    while (line := requests.get()) is not None:
        try:
            say({"evaluation": _judge(json.loads(line), say)})
        except UserError as error:
            say({"user_error": error.message, "fix": error.fix})
        except Exception:  # the process boundary: whoever asked is told, and goes on
            say({"error": traceback.format_exc()})


def _read(requests: "queue.Queue[str | None]") -> None:
    for line in sys.stdin:
        requests.put(line)
    requests.put(None)
    os.kill(os.getpid(), signal.SIGINT)


def _judge(request: dict[str, Any], say: Say) -> dict[str, Any]:
    from pkb.judge.session import evaluate
    from pkb.platforms.device_lock import devices_of, hold
    from pkb.types.job import Job

    folder = request["problems_folder"]
    # Named so that the next evaluation takes it away if this process is killed (judge/crew/leftovers.py).
    with tempfile.TemporaryDirectory(prefix=f"pkb-candidate-{os.getpid()}-") as place:
        path = Path(place) / request["filename"]
        path.write_bytes(request["code"].encode("utf-8", "replace"))
        job = Job(
            candidate=path, case=Case(*(request[field.name] for field in fields(Case))),
            problems_folder=Path(folder) if folder else None, call_limit_s=request["call_limit_s"],
        )  # fmt: skip
        # On a CPU too, one at a time: agents work on several problems at once, and would share the cores.
        with hold(devices_of(job.case.platform, job.case.ranks) or ["cpu"], say=lambda what: say({"progress": what})):
            return evaluate(job, progress=lambda what: say({"progress": what})).to_dict()


if __name__ == "__main__":
    main()
