"""How far the judge's times can be trusted: false alarms, power, kinds of calls, clocks that drift, and the records anew.

    python benchmarks/estimator.py --evaluations 200 --plot docs/images/estimator.svg > out/estimator.md

Everything is computed with the judge's own functions. Noise is not modelled: rounds are drawn from those that were measured on
a machine (docs/records/kernels.jsonl), each with its calls, its drift and batches on the host wall clock, and the candidate's
are scaled to the speedup that is to be found. No GPU is needed; a thousand evaluations take about a minute.
"""

import argparse
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pkb.judge.timing.rounds import call_times, drift_ppm
from pkb.judge.timing.statistics import (
    Claim,
    Paired,
    check_clock,
    estimate,
    looks,
    mean,
    settled,
    uncontended,
)
from pkb.problems import get
from pkb.types.protocol.replies import BatchReport
from pkb.types.timing import Decision

RECORDS = Path(__file__).parents[1] / "docs" / "records" / "kernels.jsonl"
SPEEDUPS = (0.95, 1.0, 1.02, 1.03, 1.05, 1.07, 1.1, 1.15)
LONG_US = 200.0
"""From here on a gain of 5 % is to be found."""
RESAMPLES = 200
"""Fewer than the judge's thousand: the interval's width is then known to 5 %."""


class NoisyRound(NamedTuple):
    """As it was measured: each side's calls over the side's median, and its batch on the host wall clock over the usual one."""

    reference: list[float]
    candidate: list[float]
    reference_wall: float
    candidate_wall: float
    empty_us: list[float]


@dataclass(frozen=True)
class Noise:
    name: str
    call_us: float
    rounds: list[NoisyRound]


def noise_of(record: Mapping[str, Any]) -> Noise | None:
    """None where there was no time, where calls are of several kinds, or where the host wall clock was kept otherwise then."""
    timing = record["timing"]
    if not timing or get(record["problem"]["id"]).kinds or not any(timing.get("empty_walls_us") or ()):
        return None
    sides = [timing["reference_samples_us"], timing["candidate_samples_us"]]
    # Noise without a gain: the median ratio of paired calls is 1.
    reference_us = statistics.median(us for one in sides[0] for us in one)
    medians = [reference_us, reference_us / estimate(Paired(sides[0], sides[1]), resamples=1).ratio.value]
    empty = uncontended(timing["empty_walls_us"])
    walls = [[us - empty for us in timing[f"{side}_walls_us"]] for side in ("reference", "candidate")]
    usual = [uncontended(side) for side in walls]
    each = len(timing["empty_walls_us"]) // len(walls[0])
    rounds = [
        NoisyRound(
            [us / medians[0] for us in sides[0][n]],
            [us / medians[1] for us in sides[1][n]],
            walls[0][n] / usual[0],
            walls[1][n] / usual[1],
            timing["empty_walls_us"][each * n : each * (n + 1)],
        )
        for n in range(min(len(sides[0]), len(walls[0])))
    ]
    name = f"{record['problem']['id']:02d} {record['size']}, {record['ranks']} ranks"
    return Noise(name, medians[1], rounds)


def measured_noise(path: Path = RECORDS) -> list[Noise]:
    return [noise for line in path.read_text().splitlines() if (noise := noise_of(json.loads(line)))]


class Outcome(NamedTuple):
    decision: Decision
    rounds: int


def evaluation(
    noise: Noise, true_speedup: float, source: random.Random, *, claimed: float | None = None, window: bool = True
) -> Outcome:
    """One evaluation as `judge/timing/measure.py` does it, of calls that take as long as in the record. `claimed`: what a
    forger's ranks report, whatever its speedup is."""
    reference_us, candidate_us = noise.call_us * true_speedup, noise.call_us
    said_us = candidate_us if claimed is None else reference_us / claimed
    drawn: list[NoisyRound] = []
    for look in looks(len(noise.rounds)):
        drawn += source.choices(noise.rounds, k=look.rounds - len(drawn))
        samples = Paired(
            [[reference_us * x for x in one.reference] for one in drawn],
            [[said_us * x for x in one.candidate] for one in drawn],
        )
        ratio = estimate(samples, look.error, resamples=RESAMPLES).ratio
        confirmed = True
        if window and ratio.low > 1:
            empty_us = [us for one in drawn for us in one.empty_us]
            empty = uncontended(empty_us)
            theirs, ours = samples.typical_us()
            confirmed = check_clock(
                Claim(
                    mean(samples.reference_us), 0.0, [empty + reference_us * x.reference_wall for x in drawn], theirs
                ),
                Claim(mean(samples.candidate_us), 0.0, [empty + candidate_us * x.candidate_wall for x in drawn], ours),
                empty_us,
                error=look.error,
            ).confirms
        if settled(ratio, look, confirmed=confirmed):
            break
    faster = ratio.decision is Decision.FASTER
    return Outcome(Decision.UNPROVEN if faster and not confirmed else ratio.decision, len(drawn))


class Shares(NamedTuple):
    faster: float
    unproven: float
    slower: float
    rounds: float


def shares(noises: Sequence[Noise], true_speedup: float, evaluations: int, *, seed: int = 0, **how: Any) -> Shares:
    """Of so many evaluations, which take turns with the records."""
    source = random.Random(seed)
    made = [evaluation(noises[n % len(noises)], true_speedup, source, **how) for n in range(evaluations)]
    found = Counter(one.decision for one in made)
    faster, unproven, slower = (found[one] / len(made) for one in (Decision.FASTER, Decision.UNPROVEN, Decision.SLOWER))
    return Shares(faster, unproven, slower, statistics.fmean(one.rounds for one in made))


# -- kinds of calls ----------------------------------------------------------------------------------------------------


class Mix(NamedTuple):
    share: float
    """Of the calls that are of the first kind."""
    by_medians: float
    by_pairs: float


def mixes(first: float = 54.0, second: float = 19.0, calls: int = 200) -> list[Mix]:
    """Two kinds with equal weights and speedups of their own, in changing shares of the calls."""
    source, found = random.Random(1), []
    for share in (0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9):
        kinds = ["first"] * round(share * calls) + ["second"] * (calls - round(share * calls))
        reference = [100.0 * (first if kind == "first" else second) * source.uniform(0.98, 1.02) for kind in kinds]
        candidate = [100.0 * source.uniform(0.98, 1.02) for _ in kinds]
        samples = Paired([reference], [candidate], [kinds], {"first": 0.5, "second": 0.5})
        ratio = estimate(samples, resamples=10).ratio.value
        found.append(Mix(share, statistics.median(reference) / statistics.median(candidate), ratio))
    return found


# -- clocks ------------------------------------------------------------------------------------------------------------


class Drift(NamedTuple):
    ppm: float
    one_origin_us: float
    own_start_us: float
    seen_ppm: float


def drifts(ranks: int = 8, calls: int = 25, true_us: float = 30.0) -> list[Drift]:
    """Stamps of calls 6 ms apart on devices whose clocks run apart, with a microsecond of skew at the barrier."""
    found = []
    for ppm in (0.0, 5.0, 20.0, 50.0):
        source = random.Random(2)
        reports: dict[int, BatchReport] = {}
        together = [6e6 * (call + 1) for call in range(calls)]
        for rank in range(ranks):
            rate = 1 + 1e-6 * ppm * (2 * rank / (ranks - 1) - 1)
            starts = [ns + source.uniform(0, 1000) for ns in together]
            stamps = tuple((int(ns * rate), int((ns + 1e3 * true_us) * rate)) for ns in starts)
            marks = tuple((start, end, end) for start, end in stamps)
            reports[rank] = BatchReport(marks, ((),) * calls, (1.0,) * calls)
        by_call = list(zip(*(report.calls for report in reports.values()), strict=True))
        one_origin = [(max(end for _, end, _ in call) - min(start for start, _, _ in call)) / 1e3 for call in by_call]
        own = call_times(reports).calls_us
        found.append(Drift(ppm, one_origin[-1], own[-1], max(map(abs, drift_ppm(reports)))))
    return found


# -- the records anew --------------------------------------------------------------------------------------------------


class Anew(NamedTuple):
    name: str
    then: tuple[float, float, float]
    now: tuple[float, float, float]
    kinds: dict[str, float]


def anew(path: Path = RECORDS) -> list[Anew]:
    """Records of problems with kinds: which call was of which was not kept, and is told by the largest gap between times; the
    kind with fewer calls has the smaller share."""
    found = []
    for record in map(json.loads, path.read_text().splitlines()):
        timing, problem = record["timing"], get(record["problem"]["id"])
        if not timing or not problem.kinds:
            continue
        reference, candidate = timing["reference_samples_us"], timing["candidate_samples_us"]
        kinds = _by_gap(reference, candidate)
        rarest_first = [kind for kind, _ in reversed(Counter(kind for one in kinds for kind in one).most_common())]
        weights = dict(zip(rarest_first, sorted(problem.kinds.values()), strict=False))
        result = estimate(Paired(reference, candidate, kinds, weights))
        name = f"{problem.stem} at {record['size']}, {record['ranks']} ranks"
        then = (timing["speedup"], timing["speedup_low"], timing["speedup_high"])
        found.append(Anew(name, then, result.ratio, {kind: ratio.value for kind, ratio in result.by_kind.items()}))
    return found


def _by_gap(reference: list[list[float]], candidate: list[list[float]]) -> list[list[str]]:
    """Split at the largest gap in the times of the side that shows the larger one; one kind where neither shows any."""
    best_gap, cut, side = 0.0, 0.0, reference
    for times in (reference, candidate):
        ordered = sorted(us for one in times for us in one)
        few = max(1, len(ordered) // 8)
        for low, high in zip(ordered[few - 1 : -few], ordered[few : len(ordered) - few + 1], strict=True):
            if (gap := math.log(high / low)) > best_gap:
                best_gap, cut, side = gap, math.sqrt(low * high), times
    if best_gap < 0.1:
        return [["all" for _ in one] for one in side]
    return [["longer" if us > cut else "shorter" for us in one] for one in side]


# -- the page ----------------------------------------------------------------------------------------------------------


Curves = dict[str, list[Shares]]


def report(curves: Curves, evaluations: int, records: Mapping[str, int]) -> str:
    lines = ["| true speedup | " + " | ".join(f"`faster`, {name}" for name in curves) + " | rounds |"]
    lines.append("|" + "---|" * (len(curves) + 2))
    for number, speedup in enumerate(SPEEDUPS):
        cells = [f"{curve[number].faster:.1%}" for curve in curves.values()]
        rounds = " / ".join(f"{curve[number].rounds:.0f}" for curve in curves.values())
        lines.append(f"| {speedup:.2f} | {' | '.join(cells)} | {rounds} |")
    counts = " and ".join(f"{count} records ({name})" for name, count in records.items())
    lines += [
        "",
        f"Each figure: {evaluations} evaluations, with the noise of {counts}.",
        "",
        "| record | ratio of medians, as it was | paired, by kind | of each kind |",
    ]
    lines.append("|---|---|---|---|")
    for row in anew():
        then, now = (f"{value:.1f} ({low:.1f} to {high:.1f})" for value, low, high in (row.then, row.now))
        kinds = ", ".join(f"{kind} {value:.1f}" for kind, value in row.kinds.items()) or "one kind to be seen"
        lines.append(f"| {row.name} | {then} | {now} | {kinds} |")
    lines += ["", "| clocks apart | one origin, last call | own start | drift that is reported |", "|---|---|---|---|"]
    lines += [
        f"| ±{one.ppm:.0f} ppm | {one.one_origin_us:.1f} us | {one.own_start_us:.1f} us | {one.seen_ppm:.0f} ppm |"
        for one in drifts()
    ]
    return "\n".join(lines)


def plot(curves: Curves, path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "estimator"  # the same figures give the same file
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for name, curve in curves.items():
        left.plot(SPEEDUPS, [100 * one.faster for one in curve], marker="o", markersize=3, label=name)
    left.axhline(2.5, linewidth=0.6, linestyle=":", color="grey")
    left.axhline(90, linewidth=0.6, linestyle=":", color="grey")
    left.set(xlabel="true speedup", ylabel="called faster, %", title="Power")
    left.legend(fontsize=8)
    mix = mixes()
    middle.plot([100 * one.share for one in mix], [one.by_medians for one in mix], label="ratio of medians")
    middle.plot([100 * one.share for one in mix], [one.by_pairs for one in mix], label="pairs, by kind")
    middle.set(xlabel="calls of the kind with 54x, %", ylabel="speedup", title="Two kinds: 54x and 19x", ylim=(0, 60))
    middle.legend(fontsize=8)
    clocks = drifts()
    right.plot([one.ppm for one in clocks], [one.one_origin_us for one in clocks], label="one origin for all")
    right.plot([one.ppm for one in clocks], [one.own_start_us for one in clocks], label="own start")
    right.set(xlabel="clocks run apart, ±ppm", ylabel="a call of 30 us, us", title="Eight clocks", ylim=(25, 50))
    right.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--evaluations", type=int, default=200, help="for each speedup and group of records")
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args()
    noises = measured_noise()
    groups = {
        "calls of 200 us and more": [one for one in noises if one.call_us >= LONG_US],
        "shorter calls": [one for one in noises if one.call_us < LONG_US],
    }
    curves = {
        name: [shares(group, speedup, asked.evaluations) for speedup in SPEEDUPS] for name, group in groups.items()
    }
    print(report(curves, asked.evaluations, {name: len(group) for name, group in groups.items()}))
    if asked.plot is not None:
        plot(curves, asked.plot)


if __name__ == "__main__":
    main()
