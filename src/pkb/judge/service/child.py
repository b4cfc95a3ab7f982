"""One order, carried out in a process that the server has forked for it."""

import os
import signal
import tempfile
import traceback
from pathlib import Path
from typing import NoReturn

from pkb.judge.service.messages import JudgeEvent, JudgeOrder, What
from pkb.types.document import VerdictDocument
from pkb.types.errors import UserError
from pkb.types.job import Job
from pkb.types.processes import die_with_parent


class _Line:
    """To the server."""

    def __init__(self, order_id: str, pipe: int) -> None:
        self._id, self._pipe = order_id, pipe

    def say(self, what: What, text: str = "", *, fix: str = "", document: VerdictDocument | None = None) -> None:
        view = memoryview(JudgeEvent(self._id, what, text, fix, document).encode())
        while view:
            view = view[os.write(self._pipe, view) :]

    def stage(self, text: str) -> None:
        self.say("stage", text)


def be_child(order: JudgeOrder, *, server: int, pipe: int, errors: int) -> NoReturn:
    try:
        die_with_parent(server)
        signal.signal(signal.SIGTERM, _interrupt)
        os.dup2(errors, 2)
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(quiet, 0)
        os.dup2(quiet, 1)  # what a library prints must not end up among the events
        line = _Line(order.id, pipe)
        try:
            line.say("done", document=_carry_out(order, line))
        except UserError as error:
            line.say("refused", error.message, fix=error.fix)
        except Exception:  # the process boundary: our bug, told to whoever ordered
            line.say("broken", traceback.format_exc())
    finally:
        os._exit(0)


def _interrupt(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: what follows is cleaning up
    raise KeyboardInterrupt


def _carry_out(order: JudgeOrder, line: _Line) -> VerdictDocument | None:
    # The name tells the judge's own sweeper whose folder it is, should this process be killed outright.
    with tempfile.TemporaryDirectory(prefix=f"pkb-candidate-{os.getpid()}-") as folder:
        candidate = Path(folder) / Path(order.filename).name
        candidate.write_bytes(order.source)
        if order.devices is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = order.devices
        if order.lock_folder is not None:
            os.environ["PKB_LOCK_DIR"] = order.lock_folder
        job = job_for(order, candidate)
        if order.kind == "build":
            return _build(job)
        return _evaluate(order, job, line)


def job_for(order: JudgeOrder, candidate: Path) -> Job:
    """Everything decided, and possible on this machine; UserError says why not."""
    from pkb.judge.settling import settle
    from pkb.problems.registry import default_registry

    folder = Path(order.problems_folder) if order.problems_folder else None
    registry = default_registry().with_folder(folder)
    # Whoever planned it has looked at the memory; what others use at this moment is no reason to give a task up.
    case = settle(order.case, registry, memory=False).case
    return Job(
        candidate, case, timing=order.timing, against=order.against, problems_folder=folder,
        call_limit_s=order.call_limit_s, build_limit_s=order.build_limit_s, profile=order.profile,
        more_s=order.more_s,
    )  # fmt: skip


def _build(job: Job) -> VerdictDocument | None:
    """Fills the cache of builds, so that the evaluation finds everything there. A file that does not compile, or that this
    platform cannot run, needs no evaluation: this is its verdict."""
    from pkb.judge.session import build_ahead

    os.nice(19)
    decided = build_ahead(job)
    return None if decided is None else VerdictDocument(decided.to_dict())


def _evaluate(order: JudgeOrder, job: Job, line: _Line) -> VerdictDocument:
    from pkb.judge.session import devices_for, evaluate
    from pkb.platforms.device_lock import hold

    if order.cores:
        os.sched_setaffinity(0, order.cores)
    devices = devices_for(job) or (["cpu"] if order.alone else [])
    with hold(devices, say=line.stage):
        line.say("began")
        return VerdictDocument(evaluate(job, progress=line.stage).to_dict())
