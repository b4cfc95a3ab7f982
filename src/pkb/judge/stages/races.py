"""Stage 4: provokes on purpose what lockstep ranks hide.

Each scenario queues calls back to back on changing data and checks the outputs of all of them at the end. A candidate that
passed the correctness stage and fails here has a race, and the scenario says of which kind.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from pkb.judge.decision import Decided, bad_output
from pkb.judge.exchange import Exchange
from pkb.types.difference import Mismatch, Pattern, rank_words
from pkb.types.protocol.commands import DrawSpec, Poison, Schedule
from pkb.types.verdict import Evidence, RaceKind, Stage, Verdict


@dataclass(frozen=True)
class Scenario:
    name: str
    kind: RaceKind
    """What a failure means, unless the pattern of the difference says better."""
    words: str
    late_host_us: tuple[float, float] = (0.0, 0.0)
    late_device_us: tuple[float, float] = (0.0, 0.0)
    overwrite: bool = False
    poison: bool = False
    gpu_only: bool = False


SCENARIOS = (
    Scenario("queued", RaceKind.MISSING_SYNCHRONISATION, "calls are queued back to back on changing data"),
    Scenario("late_host", RaceKind.MISSING_START_BARRIER, "one rank comes late", late_host_us=(2_000, 20_000)),
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
)


def provoke(
    exchange: Exchange, spec: DrawSpec, *, calls: int, repeats: int, on_gpu: bool, progress: Callable[[str], None]
) -> list[str]:
    """Run all scenarios; the names of those that were passed."""
    passed = []
    source = random.SystemRandom()
    for scenario in SCENARIOS:
        if scenario.gpu_only and not on_gpu:
            continue
        for repeat in range(repeats):
            progress(f"races: {scenario.words} ({repeat + 1} of {repeats})")
            _run(exchange, spec, scenario, calls, repeat, source)
        passed.append(scenario.name)
    return passed


def _run(
    exchange: Exchange, spec: DrawSpec, scenario: Scenario, calls: int, repeat: int, source: random.Random
) -> None:
    if scenario.poison:
        exchange.candidate.ask(Poison(), timeout_s=120)
    slots = exchange.deliver(spec, calls)
    world_size = exchange.candidate.spec.world_size
    common = Schedule(slots, overwrite=scenario.overwrite)

    def delays(rank: int, span: tuple[float, float]) -> tuple[float, ...]:
        """The late rank rotates from call to call."""
        late = [source.uniform(*span) if (call + repeat) % world_size == rank else 0.0 for call in range(calls)]
        return tuple(late) if span[1] else ()

    late = {
        rank: replace(
            common,
            late_host_us=delays(rank, scenario.late_host_us),
            late_device_us=delays(rank, scenario.late_device_us),
        )
        for rank in range(world_size)
    }
    exchange.run_candidate(common, late=late)
    outcome = exchange.check(slots, words=scenario.words)
    if outcome.rejected:
        raise bad_output(outcome.rejected, Stage.RACES)
    if outcome.mismatch:
        raise Decided(
            Verdict.RACE,
            Stage.RACES,
            f"right in isolation, wrong when {scenario.words}: {outcome.mismatch.output} on "
            f"{rank_words(outcome.mismatch.ranks)} ({outcome.mismatch.pattern or outcome.mismatch.what})",
            Evidence(
                race_kind=kind_of(scenario, outcome.mismatch),
                mismatch=outcome.mismatch,
                failing_ranks=outcome.mismatch.ranks,
            ),
        )
    exchange.drop()


def kind_of(scenario: Scenario, mismatch: Mismatch) -> RaceKind:
    """The scenario's kind, sharpened by what the wrong values look like."""
    if Pattern.STALE in mismatch.patterns:
        return RaceKind.STALE_READ
    if scenario.overwrite and Pattern.NAN in mismatch.patterns:
        return RaceKind.MISSING_END_BARRIER
    if scenario.poison and Pattern.NAN in mismatch.patterns:
        return RaceKind.STALE_READ
    return scenario.kind
