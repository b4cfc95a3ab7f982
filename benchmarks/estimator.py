"""How far the judge's times can be trusted: false alarms, power, starts, hostile noise, kinds of calls, clocks that drift.

    python benchmarks/estimator.py --evaluations 400 --plot docs/images/estimator.svg --page docs/power.md

Everything is computed with the judge's own functions, as `judge/timing/measure.py` calls them. The noise is that of rounds
which were measured on a machine (`noise.py`). No GPU is needed; a thousand evaluations take half a minute. `--page` replaces
what follows its mark in the page.
"""

import argparse
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from error_rates import binomial_interval
from noise import CONTROL, HOSTILE, Noise, Spread, measured_noise, starts
from records_anew import anew
from simulation import Shares, groups, hostile, shares

from pkb.judge.timing.rounds import call_times, drift_ppm
from pkb.judge.timing.statistics import (
    LONG_START,
    LONG_US,
    SHORT_START,
    Paired,
    estimate,
)
from pkb.types.protocol.replies import BatchReport

SPEEDUPS = (1.0, 1.02, 1.03, 1.05, 1.07, 1.1, 1.15, 1.3, 1.5, 2.0)
FORGED = (1.1, 1.3, 1.8)
"""What ranks claim that are no faster."""
MARK = "<!-- figures: made by benchmarks/estimator.py -->"
ASSUMED = {"alike": (False, False), "as recorded, no term for them": (True, False), "as recorded": (True, True)}
"""Whether starts differ, and whether the judge has a term for it."""
UNKNOWN = (0.005, 0.02, 0.06, 0.11)
"""By what a side's starts may differ where that is not known: as collectives do, and as calls of many kernels have."""


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


# -- the page ----------------------------------------------------------------------------------------------------------


Curves = dict[str, list[Shares]]


def share_words(share: float, evaluations: int) -> str:
    low, high = binomial_interval(round(share * evaluations), evaluations)
    return f"{100 * share:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)] + [""]


def between_starts(by_group: Mapping[str, Sequence[Noise]], evaluations: int) -> list[str]:
    """How much starts differ, what that does to unchanged code and to a gain of 5 %, and what the judge's term for it does."""

    def words(spread: Spread) -> str:
        return f"{100 * spread.value:.2f} % ({spread.degrees})"

    spreads, rows, every = [], [], list[str]()
    for long, calls, term in ((True, "200 us and more", LONG_START), (False, "shorter", SHORT_START)):
        known = starts(long=long)
        found = [words(one) for one in (known.any_day, known.together, known.control)]
        spreads.append([calls, str(len(known.cases)), *found, f"{100 * term:.1f} %"])
        every += [f"{name} {words(spread)}" for name, spread in known.cases.items()]
        every += [f"{name} {words(spread)}, not covered" for name, spread in known.outside.items()]
        noises = [one for name, some in by_group.items() if name.endswith(calls) for one in some]
        for said, (start, has_term) in ASSUMED.items():
            alone = shares(noises, 1.0, evaluations, window=False, start=start, term=has_term)
            both, gain = (shares(noises, x, evaluations, start=start, term=has_term).faster for x in (1.0, 1.05))
            counts = (alone.faster, alone.slower, both, gain)
            rows.append([calls, said, *(share_words(share, evaluations) for share in counts)])
    return [
        "## Two starts of the same code",
        "",
        *table(["calls", "cases", "any day", "within ten minutes", "control", "the judge's"], spreads),
        "Standard deviations of a side's time from start to start, and degrees of freedom. `control`: by the reference against "
        f"itself. Case by case, on any day: {'; '.join(every)}.",
        "",
        *table(
            ["calls", "starts", "1.00x: `faster`, ranks' clocks alone", "`slower`", "`faster`", "1.05x: `faster`"], rows
        ),
    ]


def unknown_starts(by_group: Mapping[str, Sequence[Noise]], evaluations: int) -> list[str]:
    """Where the judge has no figure for it, and makes more starts."""
    noises = [one for name, some in by_group.items() if name.endswith("200 us and more") for one in some]
    rows = []
    for spread in UNKNOWN:
        one = shares(noises, 1.0, evaluations, window=False, unknown=spread, restarts=False)
        several = shares(noises, 1.0, evaluations, window=False, unknown=spread)
        errors = (one.faster, one.slower, several.faster, several.slower)
        gains = [shares(noises, x, evaluations, window=False, unknown=spread).faster for x in (1.05, 1.1, 1.2, 1.5)]
        rows.append([f"{100 * spread:.1f} %", *(share_words(share, evaluations) for share in (*errors, *gains))])
    head = [
        "starts of a side differ by",
        "1.00x, one start: `faster`",
        "`slower`",
        "several starts: `faster`",
        "`slower`",
    ]
    return [
        "## Starts that differ by an unknown amount",
        "",
        "Calls of 200 us and more, by the ranks' clocks alone. The judge does not know the figure in the first column.",
        "",
        *table([*head, "1.05x", "1.10x", "1.20x", "1.50x"], rows),
    ]


def then_and_now() -> list[str]:
    rows = []
    for row in anew():
        then, now = (f"{value:.1f} ({low:.1f} to {high:.1f})" for value, low, high in (row.then, row.now))
        kinds = ", ".join(f"{kind} {value:.1f}" for kind, value in row.kinds.items()) or "one kind to be seen"
        rows.append([row.name, then, now, kinds])
    return [
        "## Kinds of calls: before and now",
        "",
        "These records do not say which call was of which kind; the largest gap between times separates the kinds.",
        "",
        *table(["record", "ratio of medians, as it was", "paired, by kind", "of each kind"], rows),
    ]


def report(curves: Curves, evaluations: int, by_group: Mapping[str, Sequence[Noise]]) -> str:
    lines = ["## `faster`, by true speedup", ""]
    lines += table(
        ["true speedup", *curves],
        (
            [f"{speedup:.2f}", *(share_words(curve[n].faster, evaluations) for curve in curves.values())]
            for n, speedup in enumerate(SPEEDUPS)
        ),
    )
    counts = ", ".join(f"{len(noises)} records ({name})" for name, noises in by_group.items())
    lines += [
        f"Each figure: {evaluations} evaluations that take turns with the records, and the 95 % interval of Clopper and "
        f"Pearson. {counts}.",
        "",
        "## Error rates on unchanged code",
        "",
    ]
    rows, sums = [], [0.0] * (2 + len(FORGED))
    for name, noises in by_group.items():
        alone = shares(noises, 1.0, evaluations, window=False)
        forged = [shares(noises, 1.0, evaluations, claimed=claimed).faster for claimed in FORGED]
        found = [alone.faster, alone.slower, *forged]
        sums = [before + share for before, share in zip(sums, found, strict=True)]
        rows.append([name, *(share_words(share, evaluations) for share in found)])
    every = len(by_group)
    rows.append(["all of these", *(share_words(share / every, every * evaluations) for share in sums)])
    head = ["unchanged code", "`faster`, ranks' clocks alone", "`slower`", *(f"claims {x}x: `faster`" for x in FORGED)]
    lines += table(head, rows)
    lines += between_starts(by_group, evaluations)
    lines += unknown_starts(by_group, evaluations)
    rows = []
    for name, side in HOSTILE.items():
        few, usual = hostile(side, evaluations, planned=4), hostile(side, evaluations)
        rows.append([name, *(share_words(x, evaluations) for one in (few, usual) for x in (one.faster, one.slower))])
    lines += [
        "## Noise that was not measured",
        "",
        "Unchanged code, two calls per round, by the ranks' clocks alone:",
        "",
    ]
    lines += table(["noise", "`faster`, 4 rounds planned", "`slower`", "`faster`, 8 planned", "`slower`"], rows)
    lines += ["## A true 1.05x, record by record", ""]
    rows = []
    each = max(20, evaluations // 8)
    for name, noises in {**by_group, "control": measured_noise(CONTROL)}.items():
        for noise in noises:
            if noise.call_us < LONG_US:
                continue
            alone, both = (shares([noise], 1.05, each, window=window) for window in (False, True))
            rows.append(
                [f"{noise.name}, {name.partition(',')[0]}", f"{noise.call_us:.0f} us", f"{noise.round_s:.1f} s",
                 f"{100 * noise.wall_noise:.0f} %", f"{100 * alone.faster:.0f} %", f"{100 * both.faster:.0f} %",
                 f"{both.rounds:.0f}"]
            )  # fmt: skip
    head = ["record", "a call", "a round", "noise of the window", "ranks' clocks alone", "`faster`", "rounds"]
    lines += table(head, rows)
    lines += [
        f"Each: {each} evaluations. Noise of the window: the standard deviation of a round's difference of the two sides on "
        "the host wall clock (robust from 8 rounds on), over the candidate's time. `control`: the reference as a candidate.",
        "",
        *then_and_now(),
    ]
    lines += ["## Clocks that run apart", "", "Eight ranks, calls of 30 us, the last of a batch of 25:", ""]
    lines += table(
        ["clocks apart", "one origin, last call", "own start", "slope of one round"],
        (
            [
                f"±{one.ppm:.0f} ppm",
                f"{one.one_origin_us:.1f} us",
                f"{one.own_start_us:.1f} us",
                f"{one.seen_ppm:.0f} ppm",
            ]
            for one in drifts()
        ),
    )
    return "\n".join(lines).rstrip() + "\n"


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
    left.set(xlabel="true speedup", ylabel="called faster, %", title="Power", xscale="log")
    left.set_xticks([1, 1.05, 1.1, 1.2, 1.5, 2], ["1", "1.05", "1.1", "1.2", "1.5", "2"], minor=False)
    left.minorticks_off()
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
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    by_group = groups()
    curves = {
        name: [shares(noises, speedup, asked.evaluations) for speedup in SPEEDUPS] for name, noises in by_group.items()
    }
    text = report(curves, asked.evaluations, by_group)
    if asked.page is not None:
        before, mark, _ = asked.page.read_text().partition(MARK)
        if not mark:
            parser.error(f"{asked.page} has no line {MARK}")
        asked.page.write_text(f"{before}{mark}\n\n{text}")
    else:
        print(text)
    if asked.plot is not None:
        plot(curves, asked.plot)


if __name__ == "__main__":
    main()
