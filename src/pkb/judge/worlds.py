"""Both sides with one number of ranks, started and loaded, and which of them is to blame for a failure."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pkb.judge.crew.crew import Crew
from pkb.judge.crew.failure import CrewFailure, CrewFailureKind
from pkb.judge.crew.patience import Patience
from pkb.judge.crew.sides import candidate_crew, oracle_crew
from pkb.judge.crew.warm import import_ahead
from pkb.judge.decision import Decided, from_failure, harness_failure
from pkb.judge.exchange import Exchange
from pkb.judge.stages import artifacts
from pkb.platforms.base import Platform
from pkb.problems.base import Problem
from pkb.problems.layouts import groups
from pkb.types.job import Job
from pkb.types.protocol.commands import Drop, Load, Open
from pkb.types.units import bytes_words
from pkb.types.verdict import Evidence, Stage, Verdict

BETWEEN_READINGS_S, MOST_READINGS = 0.5, 10
PAUSES_S = (0.0, 1.0, 4.0)
"""Before each attempt to start ranks in the place of others: what killed ones held of a GPU is free a moment after they are
gone."""
AGAIN_WITHIN_S = 60.0
"""Of the first attempt; ranks that hang while they start are not waited for once more."""


class World:
    """`open` starts both sides, `close` ends them. As a context it closes, however the block ends."""

    exchange: Exchange
    """There once the world is open."""

    def __init__(
        self,
        job: Job,
        platform: Platform,
        problem: Problem,
        *,
        ranks: int,
        build: Path,
        backend: str,
        sizes: Sequence[str] = (),
    ) -> None:
        self.job, self.platform, self.problem, self.ranks = job, platform, problem, ranks
        self._build, self._backend, self._to_come = build, backend, sizes
        self._stack = contextlib.ExitStack()
        self._oracle: Crew | None = None
        self._candidate: Crew | None = None
        self.isolation: dict[str, str] = {}
        self.environment: dict[str, str] = {}
        self.sizes: list[str] = []
        """Those that it has been used for, in order."""
        self.sound = True
        """False once a side has failed: its answers may be out of step, and its device may be gone."""

    @property
    def kinds(self) -> Mapping[str, float]:
        """Kinds of calls; the published benchmark has one kind per problem."""
        return {} if self.job.plan.as_published else self.problem.kinds

    @property
    def same_bits(self) -> bool:
        """Whether all ranks must return the same: the published comparison does not ask."""
        return self.problem.same_bits and not self.job.plan.upstream_tolerance

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._oracle is not None:
            artifacts.keep_own_kernels(self._oracle.build_folder)
        self._stack.close()

    def output_tail(self) -> str:
        return self._candidate.output_tail() if self._candidate else ""

    def _case_bytes(self) -> int:
        """Of a rank's arguments at the largest size to come; 0 where there is no GPU, and nobody asks."""
        dtype = self.job.case.dtype
        if self.platform.device != "cuda":
            return 0
        fitting = [size for size in self._to_come if self.problem.why_not(size, self.ranks, dtype) is None]
        return max((self.problem.argument_bytes(size, self.ranks, dtype) for size in fitting), default=0)

    def open(self) -> None:
        job, ranks = self.job, self.ranks
        oracle = self._oracle = self._stack.enter_context(oracle_crew(job, self.platform, ranks))
        candidate = self._stack.enter_context(
            candidate_crew(
                job, self.platform, ranks, build=self._build, backend=self._backend, case_bytes=self._case_bytes()
            )
        )
        self._candidate = candidate
        import_ahead(self.platform)
        oracle.launch()
        candidate.launch()
        oracle.await_ready()
        with _harness():
            candidate.await_ready()
        # Said before the candidate was loaded: from then on its ranks say what it likes.
        self.isolation = candidate.isolation | {"memory": candidate.memory_words}
        self.exchange = Exchange(oracle, candidate, limit_s=job.call_limit_s, kinds=self.kinds)
        self.exchange.copies = job.plan.as_published
        with _harness():
            self.exchange.open(self._opening())
        with self.blame(Stage.START):
            candidate.ask(Load(str(job.candidate.resolve())), timeout_s=job.call_limit_s + 60)
        oracle.patience = candidate.patience = Patience(job.call_limit_s)
        started = ", ".join(f"{name} after {at:.1f} s" for name, at in candidate.start_seconds.items())
        self.environment = oracle.facts | {f"start of {ranks} ranks": started}

    def reopen(self) -> None:
        """Ends both sides and starts new ones; if results were copied before, they are copied again. Raises `Decided`: a caller
        may blame the candidate for what the oracle does, although it has not been loaded yet."""
        copies, began = self.exchange.copies, time.monotonic()
        for pause_s in PAUSES_S:
            self.close()
            self.sizes.clear()
            time.sleep(pause_s)
            try:
                with _harness():
                    self.open()
                break
            except Decided as decided:
                late = time.monotonic() > began + AGAIN_WITHIN_S
                if decided.verdict is not Verdict.HARNESS_ERROR or late or pause_s == PAUSES_S[-1]:
                    raise
        self.exchange.copies = copies

    def _opening(self) -> Open:
        return Open.of(
            self.problem.layout,
            groups(self.problem.layout, self.ranks),
            mutates=() if self.job.plan.as_published else self.problem.mutates,
            returns_input=self.problem.returns_input,
        )

    @contextlib.contextmanager
    def another_candidate(self, load: Callable[[Crew, Load], None]) -> Iterator[Exchange]:
        """Starts a second side of the candidate beside the first, which makes no calls meanwhile. Its first calls are still to
        come, and `load` makes its ranks load the file. Raises `CrewFailure`."""
        oracle, job = self.exchange.oracle, self.job
        with candidate_crew(job, self.platform, self.ranks, build=self._build, backend=self._backend) as candidate:
            candidate.launch()
            candidate.await_ready()
            candidate.ask(self._opening(), timeout_s=120)
            command = Load(str(job.candidate.resolve()))
            load(candidate, command)
            candidate.hear(command, timeout_s=job.call_limit_s + 60)
            before, oracle.patience = oracle.patience, Patience(job.call_limit_s)
            candidate.patience = oracle.patience
            try:
                yield self.exchange.beside(candidate)
            finally:
                oracle.patience = before

    def clear(self) -> None:
        """Both sides drop arguments and outputs and free memory; a side that cannot makes the world unsound."""
        if not self.sound:
            return
        try:
            self.exchange.drop()
        except CrewFailure:
            self.sound = False

    @contextlib.contextmanager
    def blame(self, stage: Stage) -> Iterator[None]:
        """A failure of the candidate's side inside the block is the candidate's, one of the oracle's is ours.

        On a shared GPU a faulting kernel takes every process on that GPU with it, the oracle included; then the candidate's
        side has failed as well, and is to blame.
        """
        try:
            yield
        except CrewFailure as failure:
            if failure.role == "candidate":
                raise from_failure(failure, stage, self.platform.facts()) from failure
            if self.platform.device == "cuda" and (fault := self._candidate_fault(failure)):
                raise from_failure(fault, stage, self.platform.facts()) from failure
            raise

    def _candidate_fault(self, oracles: CrewFailure) -> CrewFailure | None:
        """Does the candidate's side still work, and has it taken the oracle's memory? Asked only when the oracle has failed
        beside it."""
        assert self._candidate is not None
        if self._candidate.warden_pid is None:  # ended by us
            return None
        try:
            self._candidate.ask(Drop(), timeout_s=30)
        except CrewFailure as failure:
            return failure
        return self._taken(self._candidate) if out_of_memory(oracles) else None

    def _taken(self, candidate: Crew) -> CrewFailure | None:
        """More of a device than its share is what is free again once the side has ended. In containers NVML cannot tell whose
        memory it is, and what a candidate's processes say of it is worth nothing."""
        before = self.platform.memory_in_use(self.ranks)
        if not before:
            return None
        candidate.kill()
        share = self.platform.memory_share()
        for rank, (with_it, without) in enumerate(zip(before, self._memory_at_rest(), strict=True)):
            if with_it - without > share:
                words = (
                    f"{bytes_words(with_it - without)} of the memory of rank {rank}'s GPU, {bytes_words(share)} allowed"
                )
                return CrewFailure(CrewFailureKind.LIMIT, [rank], words, role="candidate", limit="memory")
        return None

    def _memory_at_rest(self) -> list[int]:
        """What killed processes held is free a moment after they are gone."""
        used = self.platform.memory_in_use(self.ranks)
        for _ in range(MOST_READINGS):
            time.sleep(BETWEEN_READINGS_S)
            earlier, used = used, self.platform.memory_in_use(self.ranks)
            if used == earlier:
                break
        return used


def out_of_memory(failure: CrewFailure) -> bool:
    """Whether a side of ours says that a device had no memory left. Its word is enough: it runs no code but ours."""
    said = failure.error
    return said is not None and (said.type == "OutOfMemoryError" or "out of memory" in said.message)


@contextlib.contextmanager
def _harness() -> Iterator[None]:
    """Before the candidate is loaded nothing can be its fault."""
    try:
        yield
    except CrewFailure as failure:
        evidence = Evidence(failure=harness_failure(failure), rank_states=failure.states)
        raise Decided(Verdict.HARNESS_ERROR, Stage.START, f"the ranks did not start: {failure}", evidence) from failure
