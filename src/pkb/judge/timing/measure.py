"""Stage 5: reference and candidate in alternating rounds, every call on data it has not seen.

The ranks report times; the judge holds the host wall clock against them, verifies a share of the timed outputs chosen after
the fact, and rejects what physics does not allow.
"""

from collections.abc import Callable

from pkb.judge.exchange import Exchange
from pkb.judge.timing.clock import WallTimes
from pkb.judge.timing.conclude import conclude, hold_against_wall_clock
from pkb.judge.timing.rounds import Round, take_round, warm_up
from pkb.judge.timing.sides import Workload
from pkb.types.plan import Plan
from pkb.types.protocol.commands import DrawSpec
from pkb.types.verdict import Communication, Timing


def measure(
    exchange: Exchange,
    spec: DrawSpec,
    *,
    plan: Plan,
    calls: int,
    rounds: int,
    on_gpu: bool,
    floor_us: float | None,
    note: str,
    first_call_us: float | None,
    progress: Callable[[str], None],
) -> tuple[Timing, Communication]:
    """The times, and what moved the data while they were taken."""
    work = Workload(exchange, spec, calls, plan.verify_share)
    progress(f"timing: {plan.warmup_calls} warm-up calls")
    hiding_us = warm_up(work, plan.warmup_calls)
    taken, walls = _take_rounds(work, rounds, hiding_us if on_gpu else 0.0, progress)  # a CPU has no queue to fill
    clock = hold_against_wall_clock(taken, walls, on_gpu=on_gpu)
    if (
        clock.too_long
    ):  # suspect candidates are re-measured: the machine may have had other things to do for some rounds
        for number in range(rounds):
            progress(f"timing: queued calls take too long; re-measured, round {number + 1} of {rounds}")
            walls.take(work)
            work.swap()
        clock = hold_against_wall_clock(taken, walls, on_gpu=on_gpu)
    timing = conclude(taken, walls, clock, floor_us=floor_us, note=note, first_call_us=first_call_us)
    library = any(one.communication is Communication.LIBRARY for one in taken)
    return timing, Communication.LIBRARY if library else taken[-1].communication


def _take_rounds(
    work: Workload, rounds: int, cover_us: float, progress: Callable[[str], None]
) -> tuple[list[Round], WallTimes]:
    taken: list[Round] = []
    walls = WallTimes()
    for number in range(rounds):
        progress(f"timing: round {number + 1} of {rounds}")
        taken.append(take_round(work, cover_us))
        walls.take(work)
        work.swap()
    return taken, walls
