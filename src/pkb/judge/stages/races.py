"""Stage 4: provokes on purpose what lockstep ranks hide.

Each scenario queues calls back to back on changing data and checks the outputs of all of them at the end. A candidate that
passed the correctness stage and fails here has a race, and the scenario says of which kind, unless the call is as wrong when it
is made alone, or the candidate only returns memory that its next call overwrites. That is found by what happened: a call's
result is, in whole, that of a later call. Then all scenarios are run from the first, each result being copied before the next
call, in stream order. What goes wrong now is a race. If nothing does, and the ranks too say that results share memory, it is a
reused output.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from pkb.judge.crew.failure import CrewFailure
from pkb.judge.decision import Decided, bad_output, wrong
from pkb.judge.exchange import Exchange, Outcome, Reports
from pkb.judge.stages.late_output import require_whole
from pkb.judge.stages.prepare import Prepared
from pkb.types.difference import Mismatch, Pattern, rank_words
from pkb.types.protocol.commands import DrawSpec, Poison, Schedule
from pkb.types.protocol.limits import LONG_LATE_S
from pkb.types.verdict import Evidence, RaceKind, Stage, Verdict


@dataclass(frozen=True)
class Scenario:
    name: str
    kind: RaceKind
    """What a failure means, unless the pattern of the difference says better."""
    words: str
    late_host_us: tuple[float, float] = (0.0, 0.0)
    late_device_us: tuple[float, float] = (0.0, 0.0)
    told_late_us: tuple[float, float] = (0.0, 0.0)
    """The judge itself keeps the call from one rank, each in its turn: whoever has replaced what sleeps in a rank is late all
    the same, since it has no arguments."""
    held: bool = False
    """Threads of an emulated GPU stop between what they tell others; on a GPU they stop as it likes."""
    overwrite: bool = False
    poison: bool = False
    gpu_only: bool = False


SCENARIOS = (
    Scenario("queued", RaceKind.MISSING_SYNCHRONISATION, "calls are queued back to back on changing data"),
    Scenario("late_host", RaceKind.MISSING_START_BARRIER, "one rank comes late", late_host_us=(2_000, 20_000)),
    Scenario(
        "told_late",
        RaceKind.MISSING_START_BARRIER,
        "one rank is told of each call after the others",
        told_late_us=(10_000, 30_000),
    ),
    Scenario(
        "late_device",
        RaceKind.MISSING_START_BARRIER,
        "one rank's device is busy",
        late_device_us=(100, 2_000),
        gpu_only=True,
    ),
    Scenario(
        "overwrite",
        RaceKind.MISSING_END_BARRIER,
        "arguments are overwritten straight after the return, one rank late",
        late_host_us=(1_000, 10_000),
        overwrite=True,
    ),
    Scenario(
        "poison",
        RaceKind.STALE_READ,
        "symmetric memory is poisoned before the calls, one rank late",
        late_host_us=(1_000, 10_000),
        poison=True,
    ),
    Scenario(
        "held", RaceKind.MISSING_SYNCHRONISATION, "single threads stop for a while between their signals", held=True
    ),
)
HELD_BATCHES, HELD_S = 4, 5.0
"""For each repeat of the plan: a signal is lost if the right thread stops at the right time. And what such a batch may take
longer: threads stop for half a second in all."""


class Provoked(NamedTuple):
    passed: list[str]
    """Names of the scenarios."""
    reused: Mismatch | None
    """The result of a call that a later one overwrote; the scenarios were passed by copies."""


class _Ran(NamedTuple):
    outcome: Outcome
    reports: Reports


def provoke(
    exchange: Exchange,
    spec: DrawSpec,
    candidate: Prepared,
    *,
    calls: int,
    repeats: int,
    progress: Callable[[str], None],
) -> Provoked:
    """Run all scenarios. Leaves `exchange.copies` set for a candidate whose outputs are overwritten: what follows must copy
    them too."""
    source = random.SystemRandom()
    chosen = [
        scenario
        for scenario in SCENARIOS
        if (candidate.on_gpu or not scenario.gpu_only) and (candidate.emulated or not scenario.held)
    ]
    planned = [(scenario, repeat) for scenario in chosen for repeat in range(_batches(scenario, repeats))]
    overwritten: Decided | None = None
    shared = False
    position = 0
    while position < len(planned):
        scenario, repeat = planned[position]
        copied = ", results copied" if exchange.copies else ""
        progress(f"races: {scenario.words}{copied} ({repeat + 1} of {_batches(scenario, repeats)})")
        if scenario.told_late_us[1]:
            long_s = LONG_LATE_S * repeats * candidate.waits_itself
            outcome, reports = _run_told_late(exchange, spec, scenario, source, long_s)
        else:
            outcome, reports = _run(exchange, spec, scenario, calls, repeat, source)
        shared = shared or any(any(report.reused) for report in reports.values())
        if outcome.rejected:
            raise bad_output(outcome.rejected, Stage.RACES)
        if outcome.mismatch:
            race = _race(scenario, outcome.mismatch)
            if not outcome.overwritten or exchange.copies:
                raise _wrong_alone(exchange, outcome, scenario) or race
            overwritten, exchange.copies, position = race, True, -1
        exchange.drop()
        position += 1
    if overwritten is not None and not shared:  # in memory of its own: the data came from a peer's later call
        raise overwritten
    names = [scenario.name for scenario in chosen]
    return Provoked(names, overwritten.evidence.mismatch if overwritten else None)


def _batches(scenario: Scenario, repeats: int) -> int:
    return 1 if scenario.told_late_us[1] else repeats * HELD_BATCHES if scenario.held else repeats


def _run(
    exchange: Exchange, spec: DrawSpec, scenario: Scenario, calls: int, repeat: int, source: random.Random
) -> _Ran:
    if scenario.poison:
        exchange.candidate.ask(Poison(), timeout_s=120)
    slots = exchange.deliver(spec, calls)
    world_size = exchange.candidate.spec.world_size
    common = Schedule(slots, overwrite=scenario.overwrite, digests=True)
    held = source.randrange(world_size)  # the others go on meanwhile

    def delays(rank: int, span: tuple[float, float]) -> tuple[float, ...]:
        """The late rank rotates from call to call."""
        late = [source.uniform(*span) if (call + repeat) % world_size == rank else 0.0 for call in range(calls)]
        return tuple(late) if span[1] else ()

    late = {
        rank: replace(
            common,
            late_host_us=delays(rank, scenario.late_host_us),
            late_device_us=delays(rank, scenario.late_device_us),
            held=scenario.held and rank == held,
        )
        for rank in range(world_size)
    }
    reports = exchange.run_candidate(common, late=late, extra_s=HELD_S if scenario.held else 0.0)
    return _Ran(_checked(exchange, slots, reports, scenario), reports)


def _run_told_late(
    exchange: Exchange, spec: DrawSpec, scenario: Scenario, source: random.Random, long_s: float
) -> _Ran:
    """A batch of its own for each call: the late rank has neither key nor arguments that it could use."""
    ran = _Ran(Outcome(), {})
    latest = source.choice(exchange.candidate.ranks)
    for late in exchange.candidate.ranks:
        slots = exchange.deliver(spec, 1)
        told_late_s = {late: 1e-6 * source.uniform(*scenario.told_late_us) + (long_s if late == latest else 0.0)}
        reports = exchange.run_candidate(Schedule(slots, together=False, digests=True), told_late_s=told_late_s)
        ran = _Ran(_checked(exchange, slots, reports, scenario), ran.reports | reports)
        if ran.outcome.mismatch or ran.outcome.rejected:
            break
    return ran


def _checked(exchange: Exchange, slots: tuple[int, ...], reports: Reports, scenario: Scenario) -> Outcome:
    outcome = exchange.check(slots, words=scenario.words)
    if not outcome.mismatch and not outcome.rejected:
        require_whole(outcome, slots, reports, Stage.RACES)
    return outcome


def _wrong_alone(exchange: Exchange, outcome: Outcome, scenario: Scenario) -> Decided | None:
    """No race: the same wrong bits come out when the call is made again by itself, with all ranks in step. The calls of the
    correctness stage had other arguments (another root, a norm that is clipped), and were right."""
    assert outcome.slot is not None
    assert outcome.mismatch is not None
    try:
        again = exchange.repeat(outcome.slot, words=f"first seen when {scenario.words}; the same alone")
    except CrewFailure:
        return None
    if again.mismatch is None:
        return None
    same = all(outcome.digests[outcome.slot, r] == again.digests[outcome.slot, r] for r in outcome.mismatch.ranks)
    return wrong(again.mismatch, Stage.RACES) if same else None


def _race(scenario: Scenario, mismatch: Mismatch) -> Decided:
    return Decided(
        Verdict.RACE,
        Stage.RACES,
        f"right in isolation, wrong when {scenario.words}: {mismatch.output} on "
        f"{rank_words(mismatch.ranks)} ({mismatch.pattern or mismatch.what})",
        Evidence(race_kind=kind_of(scenario, mismatch), mismatch=mismatch, failing_ranks=mismatch.ranks),
    )


def kind_of(scenario: Scenario, mismatch: Mismatch) -> RaceKind:
    """The scenario's kind, sharpened by what the wrong values look like: data of an earlier call has been read before it was
    replaced, data of a later call has been replaced before it was read."""
    if Pattern.STALE in mismatch.patterns:
        return RaceKind.STALE_READ
    if {Pattern.LATER, Pattern.OVERWRITTEN} & set(mismatch.patterns):
        return RaceKind.MISSING_END_BARRIER
    if scenario.overwrite and Pattern.NAN in mismatch.patterns:
        return RaceKind.MISSING_END_BARRIER
    if scenario.poison and Pattern.NAN in mismatch.patterns:
        return RaceKind.STALE_READ
    return scenario.kind
