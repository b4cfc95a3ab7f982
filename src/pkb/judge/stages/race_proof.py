"""Races proven: recorded calls of a candidate on an emulated GPU, and what their order of events shows (docs/race-reports.md).

Each rank writes what its threads do to memory into a log of the judge's. A program behind walls reads the logs of all ranks and
looks for two accesses that nothing orders. Ranks of a candidate write the logs, so a log is a claim: a finding is a proof for
the trace as it was told, and a trace that is broken or cut short proves nothing.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from pkb.candidates.source import Source
from pkb.candidates.source_lines import SourceLines
from pkb.judge.crew.crew import Crew
from pkb.judge.crew.failure import CrewFailure
from pkb.judge.decision import Decided
from pkb.judge.exchange import Exchange
from pkb.kit.emulated.analyse import LOG_BYTES, make_files
from pkb.types.protocol.codec import Malformed
from pkb.types.protocol.commands import BeginRecording, DrawSpec, EndRecording, Load, Schedule
from pkb.types.protocol.replies import RecordingReply
from pkb.types.race import Access, RaceAnalysis, RaceFinding, RaceProof, RaceSchedule, Site, read_analysis
from pkb.types.race_words import finding_title
from pkb.types.verdict import Communication, Evidence, Stage, Verdict

CALLS = 3
"""In a trace: the second and third show what is done to a buffer that a peer may still read."""
WAYS = ("", "alike", "mixed")
"""Of traces, in turn."""
LATE_US = 3000.0
SLOWER_S = 60.0
"""What a batch may take longer because it is recorded."""
ENOUGH_S = 60.0
"""When recorded calls have taken so long, no third trace is begun; the second has buffers that are used again. The verdict says
how many there were."""
MOST_SEEDS = 1 << 24
_OPERATORS = ("torch.", "dist.", "the caller")
"""How the recorder names what is no kernel of the candidate's (rank/emulate/races)."""


@dataclass(frozen=True)
class Trace:
    """The files of one recorded batch, the judge's own."""

    seed: int
    shared: int
    logs: tuple[int, ...]

    def close(self) -> None:
        for fd in (self.shared, *self.logs):
            os.close(fd)


Part = TypeVar("Part", Access, Site)
Analyse = Callable[[Trace], bytes]
"""What the analyser prints of a trace. Raises `AnalyserFailed`."""


Another = Callable[[Callable[[Crew, Load], None]], contextlib.AbstractContextManager[Exchange]]
"""Starts another side of the candidate (`World.another_candidate`)."""


class AnalyserFailed(Exception):
    """The message says how, in words for a verdict."""


class BadEnd(NamedTuple):
    """How recorded calls ended badly."""

    failure: CrewFailure
    calls: int
    """That this side had been told to make, recorded and others."""


class Proved(NamedTuple):
    proof: RaceProof
    ended: BadEnd | None = None
    """Of the side that has made all other calls: its ranks are not to be used any more."""
    first_ended: BadEnd | None = None
    """Of the side that was started for its first calls."""


@dataclass(frozen=True)
class Recorder:
    """Records the calls of one candidate in a running world, and judges the traces."""

    exchange: Exchange
    spec: DrawSpec
    lines: SourceLines
    analyse: Analyse
    progress: Callable[[str], None]
    schedule: RaceSchedule = "both"
    seed: int | None = None
    other_size: str = ""
    """That calls may be of between those of the spec's size; empty where the problem has none with so many ranks."""

    def prove(self, traces: int, *, another: Another | None = None, first_call_extra_s: float = 0.0) -> Proved:
        """Never raises for what ranks do: the candidate has passed by now, or failed for another reason. What a trace has shown
        stays shown, however a later one ends. `another` side, where there is to be one more trace, of a candidate's import and
        its first calls."""
        first = secrets.randbelow(MOST_SEEDS) if self.seed is None else self.seed
        seeds = tuple(first + number for number in range(traces + (another is not None)))
        proof = RaceProof(
            0, CALLS, self.exchange.candidate.spec.world_size, self.spec.size, seeds, self.schedule, events=0
        )
        proved = self._later_calls(proof, seeds[:traces])
        if another is None or proved.proof.findings:
            return proved
        self.progress("races: recording the first calls of another start")
        with trace_files(seeds[-1], proof.ranks) as trace:
            try:
                return proved._replace(proof=self._first_calls(proved.proof, trace, another, first_call_extra_s))
            except CrewFailure as failure:
                if failure.role == "oracle":
                    raise
                proof = replace(proved.proof, first_why_not=f"they did not end well: {failure}"[:300])
                return proved._replace(proof=proof, first_ended=BadEnd(failure, CALLS))

    def _later_calls(self, proof: RaceProof, seeds: Sequence[int]) -> Proved:
        began = time.monotonic()
        for number, seed in enumerate(seeds):
            if number > 1 and time.monotonic() - began > ENOUGH_S:
                break
            self.progress(f"races: recording trace {number + 1} of {len(seeds)}")
            with trace_files(seed, proof.ranks) as trace:
                try:
                    late = _late_rank(self.schedule, number, proof.ranks)
                    way = WAYS[number % len(WAYS)]
                    _, said = self.record(trace, late=late, alike=way == "alike", mixed=way == "mixed")
                    self.exchange.drop()
                except CrewFailure as failure:
                    why_not = f"trace {number + 1} of {len(seeds)} did not end well: {failure}"[:300]
                    return Proved(replace(proof, why_not=why_not), BadEnd(failure, self.exchange.calls))
                proof = self._with(proof, trace, said)
            if proof.why_not and proof.traces:
                proof = replace(
                    proof, why_not=f"trace {number + 1} of {len(seeds)} proves nothing: {proof.why_not}"[:300]
                )
            if proof.why_not or proof.findings:
                break
        return Proved(proof)

    def _first_calls(self, proof: RaceProof, trace: Trace, another: Another, extra_s: float) -> RaceProof:
        """With a trace of what a side does from its import on. Its results are not compared: such calls were right before.
        Raises `CrewFailure`."""

        def load(side: Crew, command: Load) -> None:
            for rank in side.ranks:
                side.tell(rank, replace(command, seed=_seed_of(trace, rank)), [trace.shared, trace.logs[rank]])

        self.exchange.drop_drawn()
        with another(load) as exchange:
            _, said = replace(self, exchange=exchange).record(trace, begun=True, extra_s=SLOWER_S + extra_s)
        self.exchange.drop_drawn()
        found = self._with(replace(proof, why_not=""), trace, said)
        if found.why_not:
            return replace(proof, first_why_not=found.why_not)
        return replace(found, why_not=proof.why_not, first_calls=True)

    def _with(self, proof: RaceProof, trace: Trace, said: RecordingReply) -> RaceProof:
        if said.why_not:
            return replace(proof, why_not=said.why_not)
        own_flags = self.lines.may_poll and (said.unknown_looks or self.lines.looks_unseen)
        return self._judged(proof, trace, own_flags=own_flags)

    def record(
        self,
        trace: Trace,
        *,
        late: int | None = None,
        alike: bool = False,
        mixed: bool = False,
        weak: bool = False,
        begun: bool = False,
        extra_s: float = SLOWER_S,
    ) -> tuple[tuple[int, ...], RecordingReply]:
        """The calls, and what ranks said, all together: why there is no record of them, if there is none. The caller drops
        them. `alike`: the calls have the same shapes and are of the same kind, so that buffers which a candidate keeps by
        shape are used again. `mixed`: every other call is of another size, for what a candidate counts by shape while calls
        of all shapes share it. `begun`: recording began when the candidate was loaded."""
        candidate = self.exchange.candidate
        spec = replace(self.spec, even=True) if alike else self.spec
        sizes = (
            [spec.size if n % 2 == 0 else self.other_size for n in range(CALLS)] if mixed and self.other_size else ()
        )
        slots = self.exchange.deliver(spec, CALLS, kinds=("",) * CALLS if alike else (), sizes=sizes)
        why_not = "" if begun else self._begin(trace, weak=weak)
        if not why_not:
            common = Schedule(slots)
            delayed = {late: replace(common, late_host_us=(LATE_US,) * CALLS)} if late is not None else None
            self.exchange.run_candidate(common, late=delayed, extra_s=extra_s)
        ends = candidate.ask(EndRecording(), timeout_s=60)
        why_not = why_not or next((reply.why_not for reply in ends.values() if reply.why_not), "")
        return slots, RecordingReply(why_not, any(reply.unknown_looks for reply in ends.values()))

    def _begin(self, trace: Trace, *, weak: bool) -> str:
        """Why nothing is recorded."""
        begin, candidate = BeginRecording(trace.seed, weak=weak), self.exchange.candidate
        for rank in candidate.ranks:
            candidate.tell(rank, replace(begin, seed=_seed_of(trace, rank)), [trace.shared, trace.logs[rank]])
        answers = candidate.hear(begin, timeout_s=60)
        return next((reply.why_not for reply in answers.values() if reply.why_not), "")

    def _judged(self, proof: RaceProof, trace: Trace, *, own_flags: bool) -> RaceProof:
        """With what one more trace shows. With `own_flags`, flags that nobody knows for flags may order operators."""
        try:
            found = read_analysis(self.analyse(trace))
        except Malformed as error:
            return replace(proof, why_not=f"the analyser's report is malformed: {error}"[:300])
        except AnalyserFailed as error:
            return replace(proof, why_not=f"the analyser failed: {error}"[:300])
        if found.why_not:
            return replace(proof, why_not=found.why_not)
        if found.calls is not None and found.calls != CALLS:  # ended by somebody else, or written by one
            return replace(proof, why_not=f"a log holds {found.calls} whole calls of {CALLS}")
        if (
            max([side.rank for side in _sides(found)] + [moment.rank for moment in found.timeline], default=0)
            >= proof.ranks
        ):
            return replace(proof, why_not="the analyser names a rank that does not exist")
        every = merged(found.findings)
        flagged = [one for one in every if own_flags and between_operators(one)]
        counted = [one for one in every if one not in flagged]
        return replace(
            proof,
            traces=proof.traces + 1,
            events=proof.events + found.events,
            findings=tuple(map(self._placed, counted)),
            timeline=found.timeline if counted[:1] == list(found.findings[:1]) else (),
            own_flags=proof.own_flags or bool(flagged),
        )

    def _placed(self, finding: RaceFinding) -> RaceFinding:
        """With the text of each line."""
        missing = finding.missing
        first, second = (site and self._with_text(site) for site in (missing.first, missing.second))
        return replace(
            finding,
            first=self._with_text(finding.first),
            second=self._with_text(finding.second),
            missing=replace(missing, first=first, second=second),
        )

    def _with_text(self, part: Part) -> Part:
        place = self.lines.at(part.file, part.line)
        return replace(part, text=place.text, candidate_line=place.candidate_line)


def merged(findings: Sequence[RaceFinding]) -> list[RaceFinding]:
    """One finding for each pair of lines, whichever ranks it occurred on."""
    found: dict[object, RaceFinding] = {}
    for finding in findings:
        sides = [(side.file, side.line, side.what, side.write) for side in (finding.first, finding.second)]
        key = (finding.kind, *sides)
        known = found.get(key)
        found[key] = replace(known, count=known.count + finding.count) if known else finding
    return list(found.values())


def between_operators(finding: RaceFinding) -> bool:
    """Both accesses are whole launches of torch's, or the caller's.

    Where a candidate's Python polls memory of peers and goes on by what it finds, flags that operators write and read order
    launches as well as any barrier does. The recorder knows a few integers for flags; where it may be others, nothing is
    concluded from such pairs.
    """
    return all(side.what.startswith(_OPERATORS) for side in (finding.first, finding.second))


def touches_peers(source: Source, backend: str, communication: Communication) -> bool:
    """Whether there is anything to record, as far as the source and the observed communication show."""
    return backend in ("cuda", "triton") or communication is Communication.CUSTOM or "_symmetric_memory" in source.text


def proven_race(proof: RaceProof) -> Decided:
    first = proof.findings[0]
    more = f", and {len(proof.findings) - 1} more" if len(proof.findings) > 1 else ""
    evidence = Evidence(
        race_kind=first.kind, race_proof=proof, failing_ranks=tuple(sorted({first.first.rank, first.second.rank}))
    )
    weak = f". In {proof.weak.in_words}" if proof.weak is not None and proof.weak.wrong else ""
    return Decided(Verdict.RACE, Stage.RACES, f"{finding_title(first)}{more}{weak}", evidence)


def _sides(found: RaceAnalysis) -> list[Access]:
    return [side for finding in found.findings for side in (finding.first, finding.second)]


def _seed_of(trace: Trace, rank: int) -> int:
    return (64 * trace.seed + rank) % (1 << 31)


def _late_rank(schedule: RaceSchedule, number: int, ranks: int) -> int | None:
    if schedule == "together" or (schedule == "both" and number % 2 == 0):
        return None
    return number % ranks


@contextlib.contextmanager
def trace_files(seed: int, ranks: int, *, log_bytes: int = LOG_BYTES) -> Iterator[Trace]:
    shared, logs = make_files(ranks, log_bytes=log_bytes)
    trace = Trace(seed, shared, tuple(logs))
    try:
        yield trace
    finally:
        trace.close()
