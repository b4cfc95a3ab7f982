"""`pkb run`, behind its options: settles what is asked for, stores the plan, and has it carried out."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pkb.cli.shared_options import path_text
from pkb.types.case import AUTO, Case
from pkb.types.errors import UserError
from pkb.types.stock import Against

if TYPE_CHECKING:
    from pkb.cluster.orders import Executor
    from pkb.cluster.planning import SweepPlan
    from pkb.cluster.ray_machines import Machines
    from pkb.cluster.tally import Tally
    from pkb.platforms.base import PlatformFacts
    from pkb.problems.base import Problem
    from pkb.problems.registry import Registry
    from pkb.store import Run, Store, Task, TaskSpec


@dataclass(frozen=True, kw_only=True)
class SweepWorkers:
    """Who does it: may differ from start to start of the same run."""

    workers: int | None = None
    """Evaluations at a time; None: one on a CPU, one for each GPU."""
    builders: int | None = None
    concurrency: int = 8
    cluster: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("workers", "concurrency", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"--{name} {value} is not possible", "give 1 or more")
        if self.builders is not None and self.builders < 0:
            raise UserError(f"--builders {self.builders} is not possible", "give 0 or more")

    @property
    def builders_here(self) -> int:
        return max(1, len(os.sched_getaffinity(0)) // 2) if self.builders is None else self.builders


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a new run is to hold."""

    candidates: list[Path]
    models: list[str]
    problems: str
    samples: int
    backend: str | None
    case: Case
    """Every task's, but for the problem."""
    timing: bool | None
    against: Against
    hardware: str | None
    temperature: float | None
    max_tokens: int | None
    prices: Path | None
    problems_folder: Path | None
    eval_limit_s: float
    name: str
    profile: bool = False
    shots: int | None = None
    parts_folder: Path | None = None
    time_limit_s: float = 600.0
    retries: int = 4

    def __post_init__(self) -> None:
        if bool(self.candidates) == bool(self.models):
            raise UserError("a sweep is of candidates or of models", "give --candidates PATH or --model M")
        if self.samples < 1:
            raise UserError(f"--samples {self.samples} requests nothing", "give 1 or more")
        if not 0 < self.eval_limit_s < float("inf"):
            raise UserError(f"--eval-limit {self.eval_limit_s:g} is not a time limit", "give a number above 0")
        if not 0 < self.time_limit_s < float("inf"):
            raise UserError(f"--time-limit {self.time_limit_s:g} is not a time limit", "give a number above 0")


def begin(asked: Asked, *, store: Path | None, work: SweepWorkers) -> "Tally":
    """A new run, planned, stored and carried out."""
    from pkb.cli.runs_option import open_store
    from pkb.cluster.settings import SweepSettings

    with _machines(work.cluster) as machines:
        plan, hardware = _plan(asked, machines)
        for note in (*plan.notes, *refusal_lines(plan.refused)):
            print(note, file=sys.stderr)
        settings = SweepSettings(
            timing=asked.timing, against=asked.against, profile=asked.profile,
            problems_folder=path_text(asked.problems_folder), temperature=asked.temperature, max_tokens=asked.max_tokens,
            shots=asked.shots, parts_folder=path_text(asked.parts_folder), ask_limit_s=asked.time_limit_s,
            retries=asked.retries, evaluation_limit_s=asked.eval_limit_s, hardware=hardware, prices=_prices(asked),
        )  # fmt: skip
        config = {
            "candidates": [str(path.absolute()) for path in asked.candidates],
            "models": asked.models,
            "refused": plan.refused,
            "gone": plan.gone,
            "notes": plan.notes,
            "settings": settings.to_dict(),
        }
        name = asked.name or "+".join(asked.models) or asked.candidates[0].resolve().stem
        with open_store(store) as writer:
            run = writer.create_run("sweep", name=name, config=config, tasks=plan.tasks, candidates=plan.candidates)
            return _work_off(writer, run, work=work, machines=machines, store=store)


def tasks_of(asked: Asked) -> "tuple[TaskSpec, ...]":
    """What `begin` would put into a run on this machine."""
    return _plan(asked, None)[0].tasks


def refusal_lines(refused: Sequence[tuple[str, str]]) -> list[str]:
    """Last of all that is said before the work begins: what will not be judged is easily overlooked."""
    if not refused:
        return []
    return [
        f"REFUSED, {len(refused)} files that will not be judged:",
        *(f"  {file}: refused: {why}" for file, why in refused),
    ]


def carry_on(reference: str, *, store: Path | None, work: SweepWorkers, retry_errors: bool = False) -> "Tally":
    """What is left of a stored run: a sweep that was stopped, or files that were imported."""
    from pkb.cli.runs_option import open_reader, open_store

    open_reader(store).close()  # where nothing is stored there is nothing to resume: do not make a store
    with open_store(store) as writer:
        run = writer.run(reference)
        if run.kind not in ("sweep", "import"):
            raise UserError(f"{run.id} is a run of `pkb {run.kind}`", f"pkb {run.kind} --resume {run.id}")
        if retry_errors:
            writer.retry_failed(run.id)
        with _machines(work.cluster) as machines:
            return _work_off(writer, run, work=work, machines=machines, store=store)


# -- planning ---------------------------------------------------------------------------------------------------------


def _plan(asked: Asked, machines: "Machines | None") -> tuple["SweepPlan", str]:
    """The tasks, and the machine that prompts speak of."""
    from pkb.cli.problems_option import open_registry
    from pkb.cluster.planning import plan_candidates, plan_models
    from pkb.judge.settling import check_words
    from pkb.platforms.registry import create, pick

    check_words(asked.case)
    facts = None
    if machines is None:
        facts = pick(asked.case.platform)
        platform, device = facts.name, facts.hardware
        if asked.case.ranks > facts.max_ranks:
            raise UserError(f"platform {platform} can have at most {facts.max_ranks} ranks here", "fewer --ranks")
    else:
        platform = machines.platform(asked.case.platform, ranks=asked.case.ranks)
        device = machines.hardware(platform)
    like = asked.case.resolve(problem="", platform=platform, size=create(platform).default_size, dtype=AUTO)
    registry = open_registry(asked.problems_folder)
    if asked.candidates:
        known = {problem.name: problem.id for problem in registry.all()}
        plan = plan_candidates(asked.candidates, problems=known, like=like, backend=asked.backend or "")
    else:
        stems = [problem.stem for problem in registry.select(asked.problems)]
        plan = plan_models(
            asked.models, problems=stems, samples=asked.samples, backend=asked.backend or "cuda", like=like
        )
    return _possible(plan, registry, facts), asked.hardware or _described(platform, device)


def _possible(plan: "SweepPlan", registry: "Registry", facts: "PlatformFacts | None") -> "SweepPlan":
    """Without the tasks that cannot run; which ones, and why, is said and stored. `facts` are this machine's, if it works."""
    kept: list[TaskSpec] = []
    candidates = {}
    notes = []
    for task in plan.tasks:
        problem, case = registry.get(task.problem), task.case
        case = case.resolve(problem=problem.stem, platform=case.platform, size=case.size, dtype=problem.default_dtype)
        if why_not := why_not_here(case, problem, facts):
            notes.append(f"left out: {why_not}")
            continue
        settled = replace(task, case=case)
        kept.append(settled)
        if task.key in plan.candidates:
            candidates[settled.key] = plan.candidates[task.key]
    if not kept:
        raise UserError(f"no task can run: {notes[0].removeprefix('left out: ')}", "other --ranks, --size or --dtype")
    return replace(plan, tasks=tuple(kept), candidates=candidates, notes=(*plan.notes, *dict.fromkeys(notes)))


def why_not_here(case: Case, problem: "Problem", facts: "PlatformFacts | None") -> str | None:
    if facts is None:
        return problem.why_not(case.size, case.ranks, case.dtype)
    from pkb.judge.settling import why_not

    refusal = why_not(case, problem, facts)
    return refusal.message if refusal is not None else None


def _described(platform: str, device: str) -> str:
    from pkb.platforms.registry import traits
    from pkb.roofline.hardware import for_device

    where = traits(platform)
    known = for_device(device, shared_gpu=where.shares_device) if where.device == "cuda" else None
    return known.name if known else "h100x8"


def _prices(asked: Asked) -> dict[str, dict[str, float]]:
    if asked.prices is None:
        return {}
    from pkb.generate.prices import price_of

    return {model: price_of(model, asked.prices).to_dict() for model in asked.models}


# -- working ----------------------------------------------------------------------------------------------------------


@contextmanager
def _machines(address: str | None) -> Iterator["Machines | None"]:
    if address is None:
        yield None
        return
    from pkb.cluster.ray_machines import Machines

    with _stdout_to_stderr():
        machines = Machines(address)
        try:
            machines.meet()
            yield machines
        finally:
            machines.close()


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Ray prints what happens to its machines; standard output is for the result."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _work_off(
    writer: "Store", run: "Run", *, work: SweepWorkers, machines: "Machines | None", store: Path | None
) -> "Tally":
    from pkb.cli.run_progress import watch
    from pkb.cluster.settings import SweepSettings
    from pkb.cluster.sweep import Sweep
    from pkb.cluster.tally import tally

    before = tally(writer, run)
    done = sum(before.verdicts.values()) + before.no_answer + len(before.failed)
    tasks = writer.tasks(run.id)
    print(first_line(run.id, tasks, done=done, work=work), file=sys.stderr, flush=True)
    settings = SweepSettings.of(run.config)
    executor = _executor(tasks, work=work, machines=machines, timed=settings.timing is not False)
    resume = f"pkb run --resume {run.id}" + (f" --store {store}" if store else "")
    try:
        with _signals(), watch(total=before.tasks, done=done, counts=Counter(before.verdicts)) as watcher:
            Sweep(writer, run, executor=executor, settings=settings, watcher=watcher, limit=work.limit).work()
    except KeyboardInterrupt:
        print(f"interrupted; go on with: {resume}", file=sys.stderr)
        raise typer.Exit(130) from None
    except UserError as error:
        raise UserError(error.message, f"then: {resume}") from error
    return tally(writer, run)


def first_line(run_id: str, tasks: "Sequence[Task]", *, done: int, work: SweepWorkers) -> str:
    """What is about to happen: minutes may pass before the first verdict."""
    cases = sorted({
        f"{task.case.platform}, {task.case.ranks} ranks, {task.case.size}, plan {task.case.plan}" for task in tasks
    })  # fmt: skip
    asked = sum(task.candidate_sha is None and task.state != "done" for task in tasks)
    ask = f"asking models for {asked} candidates, {work.concurrency} at a time; " if asked else ""
    where = "; ".join(cases[:3]) + (f"; {len(cases) - 3} more" if len(cases) > 3 else "")
    return (
        f"run {run_id}: {len(tasks)} tasks, {done} of them done; {ask}building ahead, {work.builders_here} at a time, then "
        f"judging ({where})"
    )


def _executor(
    tasks: "list[Task]", *, work: SweepWorkers, machines: "Machines | None", timed: bool = True
) -> "Executor":
    platforms = {task.case.platform for task in tasks if task.state != "done"} or {AUTO}
    ranks = max((task.case.ranks for task in tasks), default=1)
    if machines is None:
        from pkb.cluster.local import LocalExecutor

        devices = seat_devices(platforms)
        seats = work.workers or (len(devices) if devices else 1)
        if devices is not None and seats > len(devices) and (timed or not all(devices)):
            why = f"{seats} evaluations at a time need {seats} GPUs of one kind, and there is room for {len(devices)}"
            fix = f"--workers {len(devices)}" + (", or --no-timing" if all(devices) else "")
            raise UserError(f"{why}: on one GPU they would spoil each other's times", fix)
        return LocalExecutor(
            seats=seats, builders=work.builders_here, concurrency=work.concurrency,
            devices=[device for device in devices or () if device],
        )  # fmt: skip
    from pkb.cluster.ray_executor import RayExecutor

    if len(platforms) > 1:
        raise UserError(f"the run is for platforms {', '.join(sorted(platforms))}", "a cluster works for one at a time")
    return RayExecutor(
        machines, platform=machines.platform(platforms.pop(), ranks=ranks), ranks=ranks, seats_each=work.workers or 1,
        builders_each=1 if work.builders is None else work.builders, concurrency=work.concurrency,
    )  # fmt: skip


def seat_devices(platforms: Iterable[str]) -> list[str] | None:
    """Where evaluations on these platforms may sit at the same time: None on a CPU, which seats share as they like; a GPU each
    where all ranks share one; one seat, with all GPUs (so none is named), where each rank has its own."""
    from pkb.platforms.cuda import gpus
    from pkb.platforms.registry import resolve, traits

    kinds = [traits(resolve(name)) for name in platforms]
    if all(kind.device == "cpu" for kind in kinds):
        return None
    if not all(kind.shares_device for kind in kinds):
        return [""]
    found = gpus()
    return [gpu.uuid for gpu in found if gpu.name == found[0].name]


@contextmanager
def _signals() -> Iterator[None]:
    """The first Ctrl-C or SIGTERM ends the sweep in good order; later ones are ignored, since that takes a moment."""

    def end(number: int, frame: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
