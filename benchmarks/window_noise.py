"""The noise of times taken through the window, in as many rounds as there is time for, whatever they show.

    python benchmarks/window_noise.py solutions/03_*.py --size real --seconds 60 --out docs/records/window-noise.jsonl

An evaluation stops as soon as its question is settled, which is after four rounds where a kernel is twice as fast: too few to
know how much rounds differ. Here both sides are measured with the judge's own functions until the time is over, and what was
measured is added to the file as a record of `noise.py`. Nothing is judged but the outputs of timed calls.
"""

import argparse
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from kernel_records import add_row
from verdict_table import problem_of

from pkb.judge.budgets import Pace
from pkb.judge.kinds import KindPlan
from pkb.judge.oracle_only.world import running
from pkb.judge.stages.correctness import check_calls
from pkb.judge.timing.clock import REPEATS, WallTimes
from pkb.judge.timing.conclude import Measured, hold_against_wall_clock, paired
from pkb.judge.timing.rounds import Round, take_round, warm_up
from pkb.judge.timing.sides import Workload
from pkb.judge.timing.statistics import ERROR, estimate
from pkb.judge.worlds import World
from pkb.platforms.base import Platform
from pkb.problems import get
from pkb.problems.suite import suite
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.plan import plan
from pkb.types.protocol.commands import DrawSpec
from pkb.types.stock import AGAINST, Against

STAMPED_S = 0.4
"""Of the time, for whole rounds; the rest is for queued batches alone."""


def measure(path: Path, platform: Platform, asked: argparse.Namespace) -> dict[str, Any]:
    problem = get(problem_of(path))
    dtype = problem.default_dtype
    job = Job(path, Case(problem.stem, platform.name, asked.ranks, asked.size, dtype, "standard"))
    spec, standard = DrawSpec(problem.stem, asked.size, dtype), plan("standard")
    on_gpu, started_at = platform.device == "cuda", datetime.now(UTC).isoformat(timespec="seconds")
    with (
        tempfile.TemporaryDirectory() as build,
        World(job, platform, problem, ranks=asked.ranks, build=Path(build), backend=asked.backend) as world,
    ):
        world.open()
        exchange = world.exchange
        # As in an evaluation: a call whose kernels are looked at comes before all that is timed.
        checked = check_calls(exchange, spec, trials=2, words="", progress=print, first_call_extra_s=120, observe=True)
        argument_bytes = asked.ranks * problem.argument_bytes(asked.size, asked.ranks, dtype)
        memory = platform.facts().memory_for(asked.ranks)
        pace = Pace(standard, memory, argument_bytes, checked.call_bytes).timing()
        against: Against = asked.against if problem.baseline is not None else "reference"
        work = Workload(exchange, spec, pace.calls, standard.verify_share, shares=world.kinds, against=against)
        cover_us = warm_up(work, standard.warmup_calls)
        began = time.monotonic()
        rounds, walls = list[Round](), WallTimes(1 if problem.mutates else REPEATS)
        while (spent := time.monotonic() - began) < asked.seconds:
            if len(rounds) < 2 or spent < STAMPED_S * asked.seconds:
                rounds.append(take_round(work, cover_us if on_gpu else 0.0))
            walls.take(work)
            work.swap()
        took_s = time.monotonic() - began
        shares = KindPlan(world.kinds).shares
        clock = hold_against_wall_clock(Measured(rounds, walls, shares, against), on_gpu=on_gpu, error=ERROR)
        samples, window = paired(rounds, shares), clock.window
        ratio = estimate(samples).ratio
        print(
            f"{path.name} at {asked.size}, {asked.ranks} ranks: {ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) in "
            f"{len(rounds)} rounds, window {window.value:.3f} ({window.low:.3f} to {window.high:.3f}) in "
            f"{len(walls.candidate_us)}; {clock.words}",
            flush=True,
        )
        timing = {
            "reference_samples_us": samples.reference_us, "candidate_samples_us": samples.candidate_us,
            "reference_walls_us": walls.reference_us, "candidate_walls_us": walls.candidate_us,
            "empty_walls_us": walls.empty_us, "window_speedup": window.value, "rounds": len(rounds),
        }  # fmt: skip
        return {
            "problem": {"id": problem.id, "version": problem.version}, "candidate": {"file": path.name},
            "platform": platform.name, "hardware": platform.facts().hardware, "ranks": asked.ranks, "size": asked.size,
            "started_at": started_at, "suite": {"version": suite().version, "judge": suite().judge_version},
            "timing": timing, "stage_seconds": {"timing": took_s},
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--platform", default="virtual")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--size", default="real")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--against", choices=AGAINST, default="baseline")
    parser.add_argument("--seconds", type=float, default=60.0, help="of rounds, for each file")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with running(asked.platform, asked.ranks) as platform:
        for record in map(partial(measure, platform=platform, asked=asked), asked.files):
            if asked.out is not None:
                add_row(asked.out, record)


if __name__ == "__main__":
    main()
