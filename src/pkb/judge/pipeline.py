"""The judge's main line: inspect, build, start, correctness, races, timing, profile, verdict.

Everything that runs a candidate happens in other processes; this one holds the seed, the clock and the decision.
"""

import contextlib
import datetime
import platform as host
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pkb.candidates.rules import Inspection, inspect_source
from pkb.candidates.source import Source, read
from pkb.judge import before_running
from pkb.judge.build import BuildReport
from pkb.judge.cases import Case, Exchange
from pkb.judge.claims import mapping
from pkb.judge.correctness import check_calls
from pkb.judge.crew import Crew
from pkb.judge.decision import Decided, from_failure
from pkb.judge.failure import CrewFailure
from pkb.judge.hints import hints_for
from pkb.judge.pace import Pace, TimingPace
from pkb.judge.profile import profile_calls
from pkb.judge.races import provoke
from pkb.judge.roles import expected_of
from pkb.judge.sides import candidate_crew, oracle_crew
from pkb.judge.stale import sweep
from pkb.judge.timing import measure
from pkb.platforms.base import Platform
from pkb.platforms.device_lock import devices_of, hold
from pkb.platforms.registry import create
from pkb.problems.base import Problem
from pkb.problems.layouts import groups
from pkb.problems.registry import default_registry, load_folder
from pkb.roofline.floor import floor_us
from pkb.roofline.hardware import for_device
from pkb.roofline.utilisation import utilisation
from pkb.types.job import Job
from pkb.types.verdict import Communication, Evaluation, Failure, Stage, Timing, Verdict

START_LIMIT_S = 180.0
Progress = Callable[[str], None]


def evaluate(job: Job, *, progress: Progress = lambda text: None) -> Evaluation:
    """One honest verdict on one candidate, alone on its GPUs."""
    with hold(devices_of(job.platform, job.ranks), say=progress):
        sweep()
        return _Session(job, progress).run()


class _Session:
    """One evaluation, from file to verdict."""

    def __init__(self, job: Job, progress: Progress) -> None:
        self.job, self.progress = job, progress
        extra = load_folder(job.problems_folder) if job.problems_folder else []
        self.problem: Problem = default_registry().plus(extra).get(job.problem)
        self.platform: Platform = create(job.platform)
        self.facts = self.platform.facts()
        self.seconds: dict[str, float] = {}
        self.checks: list[str] = []
        self.evidence: dict[str, Any] = {}
        self.isolation: dict[str, str] = {}
        self.environment: dict[str, str] = {"python": host.python_version()}
        self.output_tail = ""
        self.backend = "torch"
        self.stage = Stage.INSPECT
        self.candidate: Crew | None = None

    def run(self) -> Evaluation:
        started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        source = read(self.job.candidate)
        try:
            self._judge(source)
            decided = Decided(Verdict.CORRECT, Stage.DONE, "right on every rank in every call that was checked")
        except Decided as reached:
            decided = reached
        except CrewFailure as failure:  # of the oracle: the candidate's are translated where they happen
            decided = Decided(
                Verdict.HARNESS_ERROR,
                self.stage,
                f"the oracle failed: {failure}",
                {"failure": Failure(failure.kind, failure.detail, trace=str(failure.info.get("trace", "")))},
            )
        evidence = self.evidence | decided.evidence
        hints = hints_for(
            decided.verdict, evidence | {"detail": decided.detail}, platform=self.job.platform, backend=self.backend
        )
        return Evaluation(
            verdict=decided.verdict,
            stage=decided.stage,
            detail=decided.detail,
            problem={"id": self.problem.id, "name": self.problem.name, "version": self.problem.version},
            candidate={"file": self.job.candidate.name, "sha256": source.sha256, "backend": self.backend},
            platform=self.job.platform,
            hardware=self.facts.hardware,
            ranks=self.job.ranks,
            size=self.job.size,
            dtype=self.job.dtype,
            plan=self.job.plan.name,
            hints=tuple([*evidence.pop("hints", ()), *hints]),
            checks=tuple(self.checks),
            stage_seconds={k: round(v, 3) for k, v in self.seconds.items()},
            isolation=self.isolation,
            environment=self.environment,
            output_tail=self.output_tail,
            started_at=started_at,
            **evidence,
        )

    @contextlib.contextmanager
    def _in(self, stage: Stage) -> Iterator[None]:
        self.stage = stage
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage.value] = self.seconds.get(stage.value, 0.0) + time.monotonic() - start

    # -- stages -------------------------------------------------------------------------------------------------------

    def _judge(self, source: Source) -> None:
        with self._in(Stage.INSPECT):
            self.progress("inspect")
            inspection = self._inspect(source)
        with self._in(Stage.BUILD):
            self.progress("build")
            build = before_running.build(self.job, inspection, self.facts)
        with contextlib.ExitStack() as stack:
            with self._in(Stage.START):
                self.progress("starting the platform")
                stack.callback(self.platform.stop)
                self.platform.start()
            self._run_worlds(build, source, inspection)

    def _inspect(self, source: Source) -> Inspection:
        before_running.check_syntax(source)
        inspection = inspect_source(source)
        self.backend = inspection.backend
        self.evidence["paths"] = tuple(dict.fromkeys(use.path for use in inspection.paths))
        before_running.check_rules(source, inspection)
        self.evidence["hints"] = tuple(f"line {f.line}: {f.message}" for f in inspection.findings)
        before_running.check_needs(inspection, self.facts)
        return inspection

    def _run_worlds(self, build: BuildReport, source: Source, inspection: Inspection) -> None:
        job, plan = self.job, self.job.plan
        with self._world(job.ranks, build) as exchange:
            self._main_world(exchange, build)
            self._profile(exchange, source, inspection)  # last: nothing after it can be disturbed by the profiler
        # A second world size costs a second start, so it comes when the first has shown the candidate to be worth it.
        if plan.second_world_trials:
            self._second_world(build)

    def _main_world(self, exchange: Exchange, build: BuildReport) -> None:
        job, plan = self.job, self.job.plan
        on_gpu = self.platform.device == "cuda"
        case = Case(job.problem, job.size, job.dtype, plan.upstream_tolerance)
        argument_bytes = job.ranks * self.problem.argument_bytes(job.size, job.ranks, job.dtype)
        with self._in(Stage.CORRECTNESS), self._blame(Stage.CORRECTNESS):
            lazily_built = job.build_limit_s if build.skipped or (self.backend == "triton" and on_gpu) else 0.0
            checked = check_calls(
                exchange,
                case,
                trials=plan.trials,
                words=f"size {job.size}, {job.ranks} ranks",
                progress=self.progress,
                first_call_extra_s=lazily_built,
                observe=True,
                argument_bytes=argument_bytes,
            )
            self.evidence["communication"] = checked.communication
            where = f"{checked.calls} calls at {job.size} with {job.ranks} ranks"
            self.checks.append(f"{where}, worst error {checked.worst_ratio:.2g} of the tolerance")
            self._odd(exchange)
        pace = Pace(plan, self.facts.memory_bytes, argument_bytes, checked.call_bytes)
        with self._in(Stage.RACES), self._blame(Stage.RACES):
            if plan.race_calls:
                calls, repeats = pace.races()
                passed = provoke(
                    exchange,
                    case,
                    calls=calls,
                    repeats=repeats,
                    on_gpu=on_gpu,
                    progress=self.progress,
                )
                self.checks.append(f"races: {', '.join(passed)} ({repeats} x {calls} calls each)")
        if plan.timing_rounds and job.timing:
            with self._in(Stage.TIMING), self._blame(Stage.TIMING):
                self.evidence["timing"], seen = self._time(exchange, case, checked.first_call_us, pace.timing())
                if seen is Communication.LIBRARY:  # whatever it did while it was checked
                    self.evidence["communication"] = seen
        else:
            self.checks.append("not timed")

    def _profile(self, exchange: Exchange, source: Source, inspection: Inspection) -> None:
        job = self.job
        if self.platform.device != "cuda":
            self.checks.append("not profiled: only a GPU leaves records of what ran on it")
            return
        with self._in(Stage.PROFILE):
            case = Case(job.problem, job.size, job.dtype, job.plan.upstream_tolerance)
            observed = profile_calls(
                exchange, case, expected=expected_of(source, inspection.paths), progress=self.progress
            )
        self.evidence["profile"] = observed.profile
        self.checks.append(observed.check)
        if observed.communication is Communication.LIBRARY:
            self.evidence["communication"] = observed.communication

    def _odd(self, exchange: Exchange) -> None:
        job, plan = self.job, self.job.plan
        if not plan.odd_trials or job.size == "odd":
            return
        why_not = self.problem.why_not("odd", job.ranks, job.dtype)
        if why_not:
            self.checks.append(f"odd size not checked: {why_not}")
            return
        odd = Case(job.problem, "odd", job.dtype, plan.upstream_tolerance)
        check_calls(
            exchange,
            odd,
            trials=plan.odd_trials,
            words=f"size odd, {job.ranks} ranks",
            progress=self.progress,
            first_call_extra_s=job.build_limit_s if self.backend == "triton" and self.platform.device == "cuda" else 0,
        )
        self.checks.append(f"{plan.odd_trials} calls at odd")

    def _second_world(self, build: BuildReport) -> None:
        job, plan = self.job, self.job.plan
        other = next(
            (
                n
                for n in (2, 4, 3, 8)
                if n != job.ranks and n <= self.facts.max_ranks and self.problem.why_not("tiny", n, job.dtype) is None
            ),
            None,
        )
        if other is None:
            self.checks.append("no second world size: the problem or the platform has none")
            return
        with self._world(other, build) as exchange, self._in(Stage.CORRECTNESS), self._blame(Stage.CORRECTNESS):
            check_calls(
                exchange,
                Case(job.problem, "tiny", job.dtype),
                trials=plan.second_world_trials,
                words=f"size tiny, {other} ranks",
                progress=self.progress,
                first_call_extra_s=job.build_limit_s,
            )
            self.checks.append(f"{plan.second_world_trials} calls at tiny with {other} ranks")

    def _time(
        self, exchange: Exchange, case: Case, first_call_us: float, pace: TimingPace
    ) -> tuple[Timing, Communication]:
        job, plan = self.job, self.job.plan
        element_bytes = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8}[job.dtype]
        floor = floor_us(
            self.problem.cost(self.problem.sizes[job.size], job.ranks, element_bytes),
            hardware=self.facts.hardware,
            dtype=job.dtype,
            world_size=job.ranks,
            shared_gpu=job.platform == "virtual",
        )
        hardware = for_device(self.facts.hardware, shared_gpu=job.platform != "node")
        timing, seen = measure(
            exchange,
            case,
            plan=plan,
            calls=pace.calls,
            rounds=pace.rounds,
            on_gpu=self.platform.device == "cuda",
            floor_us=floor,
            note=self.platform.note,
            first_call_us=first_call_us,
            progress=self.progress,
        )
        limit = utilisation(
            self.problem, reference_us=timing.reference_us, candidate_us=timing.candidate_us, hardware=hardware,
            size=job.size, ranks=job.ranks, dtype=job.dtype,
        )  # fmt: skip
        return replace(timing, roofline=limit), seen

    # -- sides --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _world(self, ranks: int, build: BuildReport) -> Iterator[Exchange]:
        """Both sides with this many ranks, opened and loaded; gone when the block ends, however it ends."""
        with contextlib.ExitStack() as stack:
            with self._in(Stage.START):
                self.progress(f"starting 2 x {ranks} ranks")
                oracle = stack.enter_context(oracle_crew(self.job, self.platform, ranks))
                candidate = stack.enter_context(
                    candidate_crew(self.job, self.platform, ranks, build=build.folder, backend=self.backend)
                )
                self.candidate = candidate
                stack.callback(self._note_output, candidate)
                oracle.launch()
                candidate.launch()
                oracle.await_ready(timeout_s=START_LIMIT_S)
                with self._harness():
                    candidate.await_ready(timeout_s=START_LIMIT_S)
                exchange = Exchange(oracle, candidate, limit_s=self.job.call_limit_s)
                with self._harness():
                    exchange.open(
                        name=self.problem.layout,
                        layout=groups(self.problem.layout, ranks),
                        mutates=list(self.problem.mutates),
                        returns_input=self.problem.returns_input,
                    )
                with self._blame(Stage.START):
                    answers = candidate.ask(
                        {"do": "load", "path": str(self.job.candidate.resolve())}, timeout_s=self.job.call_limit_s + 60
                    )
                walls = mapping(answers[0], "isolation", rank=0, stage=Stage.START)
                self.isolation = candidate.isolation | {str(k): str(v)[:200] for k, v in walls.items()}
                started = ", ".join(f"{name} after {at:.1f} s" for name, at in candidate.start_seconds.items())
                self.environment |= oracle.facts | {f"start of {ranks} ranks": started}
            yield exchange

    def _note_output(self, candidate: Crew) -> None:
        self.output_tail = candidate.output_tail()

    @contextlib.contextmanager
    def _blame(self, stage: Stage) -> Iterator[None]:
        """A failure of the candidate's side inside the block is the candidate's, one of the oracle's is ours.

        On a shared GPU a faulting kernel takes every process on that GPU with it, the oracle included; then the candidate's
        side has failed as well, and is to blame.
        """
        on_gpu = self.platform.device == "cuda"
        try:
            yield
        except CrewFailure as failure:
            if failure.role == "candidate":
                raise from_failure(failure, stage, on_gpu=on_gpu) from failure
            if on_gpu and (fault := self._candidate_fault()):
                raise from_failure(fault, stage, on_gpu=on_gpu) from failure
            raise

    def _candidate_fault(self) -> CrewFailure | None:
        """Does the candidate's side still work? Asked only when the oracle has failed beside it."""
        try:
            assert self.candidate is not None
            self.candidate.ask({"do": "drop"}, timeout_s=30)
        except CrewFailure as failure:
            return failure
        return None

    @contextlib.contextmanager
    def _harness(self) -> Iterator[None]:
        """Before the candidate is loaded nothing can be its fault."""
        try:
            yield
        except CrewFailure as failure:
            trace = str(failure.info.get("trace", ""))
            raise Decided(
                Verdict.HARNESS_ERROR,
                Stage.START,
                f"the ranks did not start: {failure}",
                {"failure": Failure(failure.kind, failure.detail, trace=trace), "rank_states": failure.states},
            ) from failure
