"""The judge's main line: inspect, build, start, correctness, races, timing, profile, verdict.

Everything that runs a candidate happens in other processes; this one holds the seed, the clock and the decision. What is done
at one size is in `pipeline.py`, the start and the end of ranks in `worlds.py`.
"""

import re
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import partial

from pkb.candidates.rules import Inspection, inspect_source
from pkb.candidates.source import read
from pkb.candidates.source_lines import SourceLines
from pkb.candidates.walled_build import STOPPED
from pkb.judge.crew.failure import CrewFailure
from pkb.judge.crew.leftovers import same_interpreter, sweep
from pkb.judge.crew.warm import import_ahead
from pkb.judge.decision import Decided, harness_failure, saying_where
from pkb.judge.emulated_fault import with_fault
from pkb.judge.hints import hints_for
from pkb.judge.lacking import without_multicast
from pkb.judge.pipeline import Notes, OneSize, Progress
from pkb.judge.second_world import Passed, check_there, second_world
from pkb.judge.stages import prepare
from pkb.judge.stages.prepare import Prepared
from pkb.judge.worlds import World
from pkb.platforms.base import Platform
from pkb.platforms.device_lock import devices_of, hold
from pkb.platforms.registry import create
from pkb.platforms.short_folder import check_temporary_folder
from pkb.problems.base import Problem
from pkb.problems.registry import default_registry
from pkb.problems.suite import suite
from pkb.types.job import Job
from pkb.types.verdict import (
    CandidateRef,
    Evaluation,
    Evidence,
    FailureKind,
    ProblemRef,
    Stage,
    SuiteRef,
    Verdict,
)

_ENDED = re.compile(
    r"died due to signal|killed signal terminated|out of memory|memory exhausted|cannot allocate memory|no space left",
    re.I,
)
AT_THE_END = ("clocks", "throttling")
"""Conditions that work changes: noted again when it is over, before the device has rested."""


def evaluate(job: Job, *, progress: Progress = lambda text: None) -> Evaluation:
    """One honest verdict on one candidate, alone on its GPUs."""
    (evaluation,) = evaluate_sizes(job, [job.case.size], progress=progress)
    return evaluation


def evaluate_sizes(
    job: Job, sizes: Sequence[str], *, progress: Progress = lambda text: None
) -> Generator[Evaluation, None, None]:
    """A verdict for each size, by the same stages as `evaluate`, each handed out as soon as it is reached.

    The ranks are started once, and again after a size that did not end well; `job.case.size` plays no part. The candidate is
    inspected and built once, and tried once with another number of ranks: what that decides, it decides for all sizes.
    """
    check_temporary_folder()
    with hold(devices_for(job), say=progress), same_interpreter():
        sweep()
        yield from _Session(job, progress).run(sizes)


def build_ahead(job: Job) -> Evaluation | None:
    """Fills the build cache without a device or ranks; returns the verdict if source and compiler have decided it."""
    return _Session(job, lambda text: None).build_ahead()


def problem_of(job: Job) -> Problem:
    return default_registry().with_folder(job.problems_folder).get(job.case.problem)


def devices_for(job: Job) -> list[str]:
    """Every device that the evaluation uses, including those for the second number of ranks. If it took them later, another
    evaluation might be measuring on them, and two that wait for each other would wait for ever."""
    facts = create(job.case.platform).facts()
    other = second_world(job.case, problem_of(job), facts) if job.plan.second_world_trials else None
    return devices_of(job.case.platform, max(job.case.ranks, other.ranks if other else 0))


def _was_stopped(decided: Decided) -> bool:
    """A build that was ended and did not fail: many at a time are slow and share memory, and alone it may succeed. A compiler
    driver tells of a killed compiler as of an error in the source."""
    failure = decided.evidence.failure
    if failure is None:
        return False
    ended = failure.kind is FailureKind.BUILD_LIMIT or failure.name in STOPPED
    return ended or _ENDED.search(f"{failure.message}\n{failure.trace}") is not None


def _say_with_size(say: Progress, size: str, text: str) -> None:
    say(f"{size}: {text}")


class _Session:
    """One candidate, from file to verdicts.

    What a candidate's processes carry from one size to the next (its buffers, its caches, the number of calls so far) is its
    own, and it has it within one evaluation too, where the odd size follows. It gains nothing by it: every call has data that
    no call had before, and each size must pass all stages by itself. It loses nothing by a size that went wrong, since its
    ranks are then started anew.
    """

    def __init__(self, job: Job, progress: Progress) -> None:
        self.job, self.progress = job, progress
        self.problem: Problem = problem_of(job)
        self.platform: Platform = create(job.case.platform)
        self.facts = self.platform.facts()
        self.source = read(job.candidate)
        self.backend = "torch"
        self.sizes: Sequence[str] = ()
        self.known = Evidence()
        """Evidence from the candidate's text."""
        self.settled: Decided | None = None
        """What has been decided for every size."""
        self.second_world: Passed | None = None
        """What the trial with another number of ranks has shown, once it has been passed."""
        self.prepared: Prepared | None = None
        self.world: World | None = None
        self.platform_runs = False
        self.conditions: dict[str, str] = {}
        """Of the devices, before anything of ours was on them."""

    def run(self, sizes: Sequence[str]) -> Generator[Evaluation, None, None]:
        say, self.sizes = self.progress, sizes
        try:
            for position, size in enumerate(sizes):
                if len(sizes) > 1:
                    self.progress = partial(_say_with_size, say, size)
                yield self._evaluate(self.job.at_size(size), last=position == len(sizes) - 1)
        finally:
            self._end()
            if self.prepared is not None:
                self.prepared.build.discard()

    def build_ahead(self) -> Evaluation | None:
        notes = Notes()
        try:
            with notes.within(Stage.INSPECT):
                inspection = self._inspect()
            with notes.within(Stage.BUILD):
                prepare.build(self.job, inspection, self.facts).discard()
        except Decided as decided:
            if not _was_stopped(decided):
                return self._conclude(self.job, notes, decided)
        return None

    def _evaluate(self, job: Job, *, last: bool) -> Evaluation:
        notes = Notes()
        try:
            self._judge(job, notes, last=last)
            decided = notes.reused or Decided(
                Verdict.CORRECT, Stage.DONE, "right on every rank in every call that was checked"
            )
        except Decided as reached:
            decided = without_multicast(reached, self.known.paths, self.facts, text=self.source.text)
        except CrewFailure as failure:  # of the oracle: the candidate's are translated where they happen
            decided = Decided(
                Verdict.HARNESS_ERROR,
                notes.stage,
                f"the oracle failed: {failure}",
                Evidence(failure=harness_failure(failure)),
            )
        if decided.verdict is not Verdict.CORRECT:
            self._end()  # whatever the candidate has done to its ranks, its device or our oracle, the next size starts anew
        return self._conclude(job, notes, decided)

    def _conclude(self, job: Job, notes: Notes, decided: Decided) -> Evaluation:
        if self.prepared is not None and self.prepared.emulated:
            decided = with_fault(decided, notes.output_tail, SourceLines(self.source))
        evidence = self.known.plus(notes.evidence).plus(decided.evidence)
        if not decided.verdict.is_timed and decided.verdict is not Verdict.REJECTED:
            evidence = replace(evidence, timing=None)  # timed, and then found wrong with another number of ranks
        hints = hints_for(decided.verdict, evidence, platform=job.case.platform, backend=self.backend)
        return Evaluation(
            verdict=decided.verdict,
            stage=decided.stage,
            detail=decided.detail,
            problem=ProblemRef(
                self.problem.id,
                self.problem.name,
                self.problem.version,
                self.problem.baseline_version if self.problem.baseline is not None else None,
            ),
            suite=SuiteRef(suite().version, suite().judge_version),
            candidate=CandidateRef(job.candidate.name, self.source.sha256, self.backend),
            platform=job.case.platform,
            hardware=self.facts.hardware,
            ranks=job.case.ranks,
            size=job.case.size,
            dtype=job.case.dtype,
            plan=job.plan.name,
            checks=tuple(notes.checks),
            fidelity=notes.fidelity,
            stage_seconds={k: round(v, 3) for k, v in notes.seconds.items()},
            isolation=(self.prepared.build.isolation() if self.prepared else {}) | notes.isolation,
            environment=notes.environment,
            output_tail=notes.output_tail,
            started_at=notes.started_at,
            **vars(replace(evidence, hints=(*evidence.hints, *hints))),
        )

    # -- one size -----------------------------------------------------------------------------------------------------

    def _judge(self, job: Job, notes: Notes, *, last: bool) -> None:
        if self.settled is not None:
            if self.settled.stage not in (Stage.INSPECT, Stage.BUILD):
                notes.checks.append(
                    f"not run at {job.case.size}: it failed with another number of ranks, once for all sizes"
                )
            raise self.settled
        candidate = self._prepare(notes)
        notes.environment |= candidate.build.facts()
        world = self._main_world(notes, candidate)
        try:
            OneSize(job, world, candidate, notes, facts=self.facts, progress=self.progress).run()
        finally:
            notes.output_tail = world.output_tail()
            now = self.platform.conditions(world.ranks)
            notes.environment |= {f"{name} at the end": now[name] for name in AT_THE_END if name in now}
        if last:
            self._close_world()
        else:
            world.sizes.append(job.case.size)
            world.clear()
            if not world.sound:
                self._end()
        # A second world size costs a second start, so it comes when the first has shown the candidate to be worth it. The
        # first world may still stand then, idle: neither knows anything that the other could use, and nothing is timed.
        if job.plan.second_world_trials:
            self._second_world(notes, candidate)

    def _prepare(self, notes: Notes) -> Prepared:
        """What needs to be done once, whatever the sizes."""
        if self.prepared is None:
            try:
                with notes.within(Stage.INSPECT):
                    self.progress("inspect")
                    inspection = self._inspect()
                import_ahead(self.platform)  # while the compilers run
                with notes.within(Stage.BUILD):
                    self.progress("build")
                    build = prepare.build(self.job, inspection, self.facts)
            except Decided as decided:
                self.settled = decided
                raise
            on_gpu = self.platform.device == "cuda"
            self.prepared = Prepared(self.source, inspection, build, self.job.build_limit_s, on_gpu)
        return self.prepared

    def _inspect(self) -> Inspection:
        prepare.check_syntax(self.source)
        inspection = inspect_source(self.source)
        self.backend = inspection.backend
        self.known = Evidence(paths=tuple(dict.fromkeys(use.path for use in inspection.paths)))
        prepare.check_rules(self.source, inspection)
        self.known = replace(self.known, hints=tuple(f"line {f.line}: {f.message}" for f in inspection.findings))
        prepare.check_needs(inspection, self.facts)
        return inspection

    def _second_world(self, notes: Notes, candidate: Prepared) -> None:
        """Some calls with another number of ranks: made for the first size that gets that far, and valid for all."""
        if self.second_world is None:
            try:
                self.second_world = self._try_second_world(notes, candidate)
            except Decided as decided:
                if decided.verdict is not Verdict.HARNESS_ERROR:
                    self.settled = decided
                raise
            notes.checks.append(self.second_world.check)
        else:
            notes.checks.append(f"{self.second_world.check} (once for all sizes)")
        notes.reused = notes.reused or self.second_world.reused

    def _try_second_world(self, notes: Notes, candidate: Prepared) -> Passed:
        other = second_world(self.job.case, self.problem, self.facts)
        if other is None:
            return Passed("no second world size: the problem or the platform has none", None)
        with saying_where(other.words), self._new_world(other.ranks, candidate) as world:
            try:
                self._open(world, notes)
                return check_there(world, other, candidate, progress=self.progress, within=notes.within)
            finally:
                notes.output_tail = world.output_tail()

    # -- worlds -------------------------------------------------------------------------------------------------------

    def _main_world(self, notes: Notes, candidate: Prepared) -> World:
        """The one that the size before has left behind, or a new one."""
        if self.world is None:
            self.world = self._new_world(self.job.case.ranks, candidate)
            self._open(self.world, notes)
        else:
            notes.isolation = self.world.isolation
            notes.environment |= (
                self.conditions | self.world.environment | {"sizes before, same start": ", ".join(self.world.sizes)}
            )
        return self.world

    def _new_world(self, ranks: int, candidate: Prepared) -> World:
        return World(
            self.job, self.platform, self.problem,
            ranks=ranks, build=candidate.build.folder, backend=candidate.backend, sizes=self.sizes,
        )  # fmt: skip

    def _open(self, world: World, notes: Notes) -> None:
        with notes.within(Stage.START):
            if not self.platform_runs:
                # Before anything of ours is on the devices, so that whoever is there is somebody else.
                self.conditions = self.platform.conditions(world.ranks)
                self.progress("starting the platform")
                self.platform_runs = True
                self.platform.start()
            self.progress(f"starting 2 x {world.ranks} ranks")
            try:
                world.open()
            finally:
                notes.output_tail = world.output_tail()
        notes.isolation = world.isolation
        notes.environment |= self.conditions | world.environment

    def _close_world(self) -> None:
        world, self.world = self.world, None
        if world is not None:
            world.close()

    def _end(self) -> None:
        """The ranks, and what the platform runs for them: a fault on a shared GPU is one of its MPS server too."""
        self._close_world()
        if self.platform_runs:
            self.platform_runs = False
            self.platform.stop()
