"""What is done at one size once the ranks stand: correctness, the odd size, races, timing, profile."""

import contextlib
import datetime
import platform as host
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from pkb.candidates.backend import needs
from pkb.candidates.host_collectives import unwatched_collectives
from pkb.candidates.source_lines import SourceLines
from pkb.judge.budgets import Pace, TimingPace
from pkb.judge.crew.failure import CrewFailure
from pkb.judge.decision import Decided, reused_output, saying_where
from pkb.judge.exchange import Exchange
from pkb.judge.profile.calls import profile_calls
from pkb.judge.profile.roles import expected_of
from pkb.judge.stages.bad_end import decide_bad_end
from pkb.judge.stages.baseline import check_baseline
from pkb.judge.stages.correctness import Checked, check_calls
from pkb.judge.stages.prepare import Prepared
from pkb.judge.stages.race_analyser import analyse
from pkb.judge.stages.race_proof import Proved, Recorder, proven_race, touches_peers
from pkb.judge.stages.races import provoke
from pkb.judge.stages.weak_execution import run_weakly
from pkb.judge.timing.measure import measure
from pkb.judge.timing.other import with_other_reading
from pkb.judge.timing.starts import Starts, known_below_us
from pkb.judge.worlds import World
from pkb.kit.fingerprint import fingerprint
from pkb.platforms.base import PlatformFacts
from pkb.platforms.cpu import emulator_seed
from pkb.problems.compiled import COMPILED_IN
from pkb.roofline.bandwidth import bandwidths
from pkb.roofline.floor import floor_us, may_send_fewer_bits
from pkb.roofline.hardware import for_device
from pkb.roofline.utilisation import utilisation
from pkb.types.job import Job
from pkb.types.protocol.commands import DrawSpec
from pkb.types.race import OWN_ACCOUNT
from pkb.types.stock import Against
from pkb.types.verdict import Communication, Evidence, Stage, Timing, Verdict

Progress = Callable[[str], None]
MOST_WEAK_BATCHES = 2
"""Whoever relies on the order of weak accesses is wrong in most of its calls."""


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    return {"python": host.python_version(), "kit": fingerprint()}


@dataclass
class Notes:
    """What one evaluation has found so far."""

    started_at: str = field(default_factory=_now)
    stage: Stage = Stage.INSPECT
    seconds: dict[str, float] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)
    evidence: Evidence = field(default_factory=Evidence)
    isolation: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=_versions)
    fidelity: dict[str, str] = field(default_factory=dict)
    output_tail: str = ""
    reused: Decided | None = None
    """What it is if it passes everything that follows."""

    @contextlib.contextmanager
    def within(self, stage: Stage) -> Iterator[None]:
        self.stage = stage
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage.value] = self.seconds.get(stage.value, 0.0) + time.monotonic() - start


class OneSize:
    """The stages for `job.case.size` in a running world."""

    def __init__(
        self, job: Job, world: World, candidate: Prepared, notes: Notes, *, facts: PlatformFacts, progress: Progress
    ) -> None:
        self.job, self.world, self.candidate = job, world, candidate
        self.notes, self.facts, self.progress = notes, facts, progress
        self.exchange, self.problem, self.on_gpu = world.exchange, world.problem, candidate.on_gpu
        self.exchange.is_new_size()
        plan = job.plan
        self.spec = DrawSpec(
            job.case.problem,
            job.case.size,
            job.case.dtype,
            upstream=plan.upstream_tolerance,
            as_published=plan.as_published,
        )
        self._has_baseline = world.problem.has_baseline_at(job.case.size) and not plan.as_published
        self.against: Against = job.against if self._has_baseline else "reference"

    def run(self) -> None:
        """Raises `Decided` at the first stage that the candidate fails."""
        try:
            self._stages()
        except Decided as decided:
            raise self._explained(decided) from decided
        # Last: recorded calls are slow, and whatever they come to, all else has been said.
        traces = self.job.plan.race_traces
        proved = self._prove(traces=traces, weakly=min(traces, MOST_WEAK_BATCHES), first_calls=traces > 0)
        if proved is None:
            return
        if proved.proof.findings:
            raise proven_race(proved.proof)
        for end in filter(None, (proved.ended, proved.first_ended)):
            with self.notes.within(Stage.RACES):
                said = decide_bad_end(
                    self.world, replace(self.spec, size="tiny"), end, extra_s=self.candidate.first_call_extra_s(),
                    progress=self.progress,
                )  # fmt: skip
            self.notes.checks.append(said)

    def _explained(self, decided: Decided) -> Decided:
        """A wrong result, or a race that was provoked, with the race that is proven to be there, if one is."""
        if decided.verdict not in (Verdict.WRONG, Verdict.RACE) or not self.world.sound:
            return decided
        self.world.clear()
        traces = 2 if decided.verdict is Verdict.RACE else 1  # the second trace has buffers that are used again
        proved = self._prove(traces=traces) if self.world.sound else None
        if proved is None or not proved.proof.findings:
            return decided
        return replace(decided, evidence=decided.evidence.plus(Evidence(race_proof=proved.proof)))

    def _prove(self, *, traces: int, weakly: int = 0, first_calls: bool = False) -> Proved | None:
        """`first_calls`: in another start of the candidate's ranks these are recorded as well. None where this platform, plan
        or kind of candidate has no such stage."""
        if self.on_gpu or not self.job.plan.race_calls:
            return None
        source, backend = self.candidate.source, self.candidate.backend
        if not touches_peers(source, backend, self.notes.evidence.communication):
            return None
        if "cpp" in needs(source):
            self.notes.checks.append("races neither proven nor excluded: C++ for the host leaves no record")
            return None
        with self.notes.within(Stage.RACES):
            recorder = Recorder(
                self.exchange, replace(self.spec, size="tiny"), SourceLines(source), analyse, self.progress,
                schedule=self.job.race_schedule, seed=emulator_seed(),
                other_size="odd" if self.job.plan.odd_trials and not self._why_not_odd() else "",
            )  # fmt: skip
            proved = recorder.prove(
                traces,
                another=self.world.another_candidate if first_calls else None,
                first_call_extra_s=self.candidate.first_call_extra_s(),
            )
            if weakly and proved.ended is None and backend == "cuda":
                proved = run_weakly(recorder, proved.proof, weakly)._replace(first_ended=proved.first_ended)
        proof = proved.proof
        self.world.sound = self.world.sound and proved.ended is None
        self.notes.evidence = replace(self.notes.evidence, race_proof=proof)
        self.notes.checks += [text for text in (proof.in_words, proof.weak_in_words, OWN_ACCOUNT) if text]
        return proved

    def _stages(self) -> None:
        job, plan, notes = self.job, self.job.plan, self.notes
        argument_bytes = job.case.ranks * self.problem.argument_bytes(job.case.size, job.case.ranks, job.case.dtype)
        with notes.within(Stage.CORRECTNESS), self.world.blame(Stage.CORRECTNESS):
            checked = self._correctness(argument_bytes)
            self._say_library(checked)
            self._odd()
        pace = Pace(plan, self.facts.memory_for(job.case.ranks), argument_bytes, checked.call_bytes)
        with notes.within(Stage.RACES), self.world.blame(Stage.RACES):
            if plan.race_calls:
                calls, repeats = pace.races()
                provoked = provoke(
                    self.exchange, self.spec, self.candidate, calls=calls, repeats=repeats, progress=self.progress
                )
                copied = ", each result copied before the next call" if provoked.reused else ""
                notes.checks.append(f"races: {', '.join(provoked.passed)} ({repeats} x {calls} calls each){copied}")
                notes.reused = reused_output(provoked.reused) if provoked.reused else None
        if self.candidate.emulated:
            notes.checks.append("not timed: times on an emulated GPU mean nothing")
        elif job.is_timed:
            with notes.within(Stage.TIMING), self.world.blame(Stage.TIMING):
                timing, seen = self._time(checked.first_call_us, pace.timing())
                timing = self._other_reading(timing, pace.timing())
                notes.evidence = replace(notes.evidence, timing=timing)
                if seen is Communication.LIBRARY:  # whatever it did while it was checked
                    notes.evidence = replace(notes.evidence, communication=seen)
        else:
            notes.checks.append(f"not timed: plan {plan.name} times nothing" if job.timing else "not timed")
        self._profile()  # last: nothing after it at this size can be disturbed by the profiler

    def _correctness(self, argument_bytes: int) -> Checked:
        job, plan = self.job, self.job.plan
        checked = self._check_calls(
            self.spec,
            trials=plan.trials,
            words=f"size {job.case.size}, {job.case.ranks} ranks",
            observe=plan.observe,
            argument_bytes=argument_bytes,
        )
        if not plan.observe:
            self.notes.checks.append("what moves the data was not observed")
            if checked.communication is not Communication.LIBRARY:  # a profile would show more than torch's own count
                checked = checked._replace(communication=Communication.UNKNOWN)
        self.notes.evidence = replace(self.notes.evidence, communication=checked.communication)
        self.notes.fidelity = dict(checked.fidelity)
        if self.world.same_bits:
            self.notes.checks.append("the same bits on all ranks")
        where = f"{checked.calls} calls at {job.case.size} with {job.case.ranks} ranks"
        self.notes.checks.append(f"{where}, worst error {checked.worst_ratio:.2g} of the tolerance")
        return checked

    def _check_calls(
        self,
        spec: DrawSpec,
        *,
        trials: int,
        words: str,
        new_ranks: bool = True,
        observe: bool = False,
        argument_bytes: int = 0,
    ) -> Checked:
        return check_calls(
            self.exchange, spec, trials=trials, words=words, progress=self.progress,
            first_call_extra_s=self.candidate.first_call_extra_s(new_ranks=new_ranks), observe=observe,
            argument_bytes=argument_bytes, same_bits=self.world.same_bits, mutates=bool(self.problem.mutates),
        )  # fmt: skip

    def _say_library(self, checked: Checked) -> None:
        """What makes its communication the library's, beyond torch's own count."""
        if checked.library:
            more = f" and {len(checked.library) - 2} more" if len(checked.library) > 2 else ""
            self.notes.checks.append(f"communication by the library: {', '.join(checked.library[:2])}{more}")
        named = unwatched_collectives(self.candidate.source)
        if named:
            line, function = named[0]
            self.notes.checks.append(f"communication by the library: line {line} looks up {function}")
            self.notes.evidence = replace(self.notes.evidence, communication=Communication.LIBRARY)

    def _why_not_odd(self) -> str | None:
        return self.problem.why_not("odd", self.job.case.ranks, self.job.case.dtype)

    def _odd(self) -> None:
        job, plan = self.job, self.job.plan
        if not plan.odd_trials or job.case.size == "odd":
            return
        why_not = self._why_not_odd()
        if why_not:
            self.notes.checks.append(f"odd size not checked: {why_not}")
            return
        odd, words = replace(self.spec, size="odd"), f"size odd, {job.case.ranks} ranks"
        with saying_where(words), self.world.blame(Stage.CORRECTNESS), self.exchange.other_size():
            self._check_calls(odd, trials=plan.odd_trials, words=words, new_ranks=False)
        self.notes.checks.append(f"{plan.odd_trials} calls at odd")

    def _time(self, first_call_us: float, pace: TimingPace) -> tuple[Timing, Communication]:
        job, platform = self.job, self.world.platform
        element_bytes = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8}[job.case.dtype]
        cost = self.problem.cost(self.problem.sizes[job.case.size], job.case.ranks, element_bytes)
        floor = floor_us(
            cost,
            hardware=self.facts.hardware,
            dtype=job.case.dtype,
            world_size=job.case.ranks,
            shared_gpu=platform.device == "cuda" and platform.shares_device,
            fewer_bits=may_send_fewer_bits(self.problem),
        )
        hardware = for_device(self.facts.hardware, shared_gpu=platform.shares_device)
        if self.against == "baseline":
            self._check_baseline()
        timing, seen = measure(
            self.exchange,
            self.spec,
            plan=job.plan,
            calls=pace.calls,
            rounds=pace.rounds,
            on_gpu=self.on_gpu,
            floor_us=floor,
            note="; ".join(filter(None, [platform.note, self.exchange.company_note])),
            first_call_us=first_call_us,
            progress=self.progress,
            against=self.against,
            shares=self.world.kinds,
            mutates=bool(self.problem.mutates),
            starts=self._starts(),
            more_s=job.more_s,
        )
        if self.against == "baseline":
            self._check_baseline(again=True)  # buffers that it keeps from call to call have been used by now
        limit = utilisation(
            self.problem, reference_us=timing.reference_us, candidate_us=timing.candidate_us, hardware=hardware,
            size=job.case.size, ranks=job.case.ranks, dtype=job.case.dtype,
        )  # fmt: skip
        rates = bandwidths(cost, reference_us=timing.reference_us, candidate_us=timing.candidate_us)
        return replace(timing, roofline=limit, **rates), seen

    def _starts(self) -> Starts | None:
        """On a CPU nothing is called faster, and the published protocol has one start."""
        if not self.job.starts and (not self.on_gpu or self.job.plan.as_published):
            return None
        known_us = known_below_us(self.problem.taxonomy.layer, shared_gpu=self.world.platform.shares_device)
        return Starts(self._restart, self.job.starts, known_us, self.job.more_s)

    def _restart(self) -> Exchange:
        """The ranks of both sides anew, with a first call that was right: it may compile, and make what later ones use."""
        self.world.reopen()
        self.exchange = self.world.exchange
        self._check_calls(
            self.spec, trials=1, words=f"size {self.spec.size}, {self.job.case.ranks} ranks, started again"
        )
        if self.against == "baseline":
            self._check_baseline()
        return self.exchange

    def _check_baseline(self, *, again: bool = False) -> None:
        compiles = self.on_gpu and self.problem.function("baseline").__module__ in COMPILED_IN
        words = "compiled by torch.compile, and compared" if compiles and not again else "compared"
        self.progress(f"the problem's baseline is {words}")
        check_baseline(self.exchange, self.spec, kinds=self.world.kinds, same_bits=self.problem.same_bits)

    def _other_reading(self, timing: Timing, pace: TimingPace) -> Timing:
        """Where the reference does not fit into memory, or the baseline cannot be compiled, the verdict stands without."""
        if not self._has_baseline:
            known = "" if self.job.plan.as_published else ", which is the baseline of this problem at this size"
            self.notes.checks.append(f"timed against the reference{known}")
            return timing
        try:
            if self.against == "reference":
                self._check_baseline()
            both = with_other_reading(
                self.exchange, self.spec, timing, calls=pace.calls, on_gpu=self.on_gpu, progress=self.progress,
                shares=self.world.kinds,
            )  # fmt: skip
            if self.against == "reference":
                self._check_baseline(again=True)
            self.notes.checks.append(f"the baseline's outputs compared; timed against the {self.against}")
            return both
        except Decided as faulty:
            if self.against == "baseline" or faulty.verdict is not Verdict.HARNESS_ERROR:
                raise
            self.notes.checks.append(f"no speedup against the baseline: {faulty.detail[:300]}")
            return timing
        except CrewFailure as failure:
            if failure.role == "candidate":
                raise
            self.world.sound = False
            other = "reference" if self.against == "baseline" else "baseline"
            self.notes.checks.append(f"no speedup against the {other}, which did not run: {str(failure)[:300]}")
            return timing

    def _profile(self) -> None:
        if not self.job.profile:
            self.notes.checks.append("not profiled: not asked for")
            return
        if not self.on_gpu:
            self.notes.checks.append("not profiled: that needs a GPU")
            return
        if not self.world.sound:
            self.notes.checks.append("not profiled: the oracle's ranks have failed")
            return
        with self.notes.within(Stage.PROFILE):
            expected = expected_of(self.candidate.source, self.candidate.inspection.paths)
            observed = profile_calls(
                self.exchange, self.spec, expected=expected, against=self.against, progress=self.progress
            )
        self.notes.evidence = replace(self.notes.evidence, profile=observed.profile)
        self.notes.checks.append(observed.check)
        if observed.communication is Communication.LIBRARY:
            self.notes.evidence = replace(self.notes.evidence, communication=observed.communication)
        self.world.sound = self.world.sound and not observed.broken
