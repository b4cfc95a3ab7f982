"""The noise of times measured on a GPU, from which simulated evaluations are drawn.

A record is one evaluation (docs/records): the calls of each round on both sides, and each round's batches on the host wall
clock. Records of `WINDOW` and `CONTROL` were taken through the window (docs/window.md). Those of `AS_IT_WAS` were taken before
ranks stopped sleeping inside it, with one batch of the reference per round, and the older ones before there was a window.
`window_noise.py` measures more rounds than an evaluation needs. `python benchmarks/noise.py FILE.jsonl ...` extracts from
verdicts what is needed here, and with `--starts` what `STARTS` holds: the times of the problem's own functions, which are the
same code in every start.

Rounds are drawn by a smoothed bootstrap (Silverman 1986, 6.4.1), because a record may have only four. Drawn repeatedly without
smoothing, four rounds give medians that jump between a few values, and a variance that is too small by (n - 1) / n. So a drawn
round is a measured one whose deviation from the middle is stretched, plus a normal deviate of 1.06 n^(-1/5) robust standard
deviations, such that the variance is right. The uncertainty of a variance estimated from four rounds is not modelled. Rounds
of one start say nothing about another, so an evaluation also draws a factor for each side: normal, with the standard deviation
of a case of `STARTS`.
"""

import json
import math
import random
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pkb.judge.budgets import Pace
from pkb.judge.exchange import CallBytes
from pkb.judge.timing.clock import repeats_for
from pkb.judge.timing.statistics import LONG_US, Paired, estimate, trimmed_mean
from pkb.problems import get
from pkb.rank.server import WAKE_S
from pkb.types.plan import plan

RECORDS = Path(__file__).parents[1] / "docs" / "records"
OLDER = (RECORDS / "older-noise.jsonl",)
AS_IT_WAS = (RECORDS / "h200-shared" / "kernels.jsonl",)
WINDOW = (RECORDS / "window-noise.jsonl",)
CONTROL = (RECORDS / "h200-shared" / "control.jsonl", RECORDS / "window-control.jsonl")
"""The reference itself as a candidate."""
STARTS = RECORDS / "starts.jsonl"
NEEDED = (
    "reference_samples_us", "candidate_samples_us", "reference_walls_us", "candidate_walls_us", "empty_walls_us",
    "speedup", "speedup_low", "speedup_high", "window_speedup", "window_speedup_low", "window_speedup_high",
)  # fmt: skip


class Drawn(NamedTuple):
    """A round without a gain."""

    reference: list[float]
    candidate: list[float]
    """Of each call, over what it usually takes."""
    reference_walls_us: list[float]
    candidate_walls_us: list[float]
    """Per call, of a batch on the host wall clock; of the candidate there is one."""
    empty_walls_us: list[float]


class Smooth:
    """A sample of numbers, from which others like them are drawn."""

    def __init__(self, values: Sequence[float], *, without: float = 0.0) -> None:
        """`without`: a standard deviation that is in these numbers, and is drawn elsewhere."""
        self.values, count = list(values), len(values)
        self.middle = statistics.median(values)
        deviation = statistics.stdev(values) if count > 1 else 0.0
        self.spread = deviation  # four numbers cannot tell an outlier from a wide distribution
        if count >= 8:
            self.spread = min(deviation, 1.4826 * statistics.median(abs(x - self.middle) for x in values))
        rest = math.sqrt(max(0.0, 1 - (without / deviation) ** 2)) if deviation else 0.0
        self.bandwidth = 1.06 * count**-0.2 * self.spread * rest
        added = (1.06 * count**-0.2 * self.spread / deviation) ** 2 if deviation else 0.0
        self.stretch = rest * math.sqrt(count / max(1, count - 1) / (1 + added))

    def near(self, index: int, source: random.Random) -> float:
        return self._centre(index) + source.gauss(0, self.bandwidth)

    def _centre(self, index: int) -> float:
        return self.middle + self.stretch * (self.values[index] - self.middle)

    def usual(self) -> float:
        """The trimmed mean of all that may be drawn."""
        steps = [self.bandwidth * statistics.NormalDist().inv_cdf((n + 0.5) / 25) for n in range(25)]
        return trimmed_mean([self._centre(n) + step for n in range(len(self.values)) for step in steps], 0.025).value


class _Walls:
    """One side's batches on the host wall clock, by round. Where a record has one batch and the judge makes several today,
    they are drawn as if each were of another round: nothing is known of what they have in common."""

    def __init__(self, by_round: Sequence[Sequence[float]], repeats: int) -> None:
        self.rounds, self.each, self._repeats = len(by_round), len(by_round[0]), repeats
        self.all = Smooth([us for one in by_round for us in one])

    def draw(self, index: int, source: random.Random) -> list[float]:
        first = self.each * index
        chosen = [*range(first, first + self.each)][: self._repeats]
        chosen += [source.randrange(len(self.all.values)) for _ in range(self._repeats - len(chosen))]
        return [self.all.near(n, source) for n in chosen]

    def of_round(self, index: int) -> float:
        return statistics.fmean(self.all.values[self.each * index : self.each * (index + 1)])


class _Calls:
    """Logarithms of one side's calls: what a round has in common, and what its calls add to it."""

    def __init__(self, rounds: Sequence[Sequence[float]]) -> None:
        medians = [statistics.median(one) for one in rounds]
        self.starts = [0]
        for one in rounds:
            self.starts.append(self.starts[-1] + len(one))
        calls = len(rounds[0])
        few = math.sqrt(calls / max(1, calls - 1))
        """A round's middle takes part of what its calls differ by."""
        self.own = Smooth([few * (x - middle) for one, middle in zip(rounds, medians, strict=True) for x in one])
        self.common = Smooth(medians, without=self._spread_of_medians())

    def _spread_of_medians(self) -> float:
        """What the calls' own part alone adds to that of a round."""
        source, rounds = random.Random(0), len(self.starts) - 1
        return statistics.stdev(statistics.median(self._own(n % rounds, source)) for n in range(200))

    def _own(self, index: int, source: random.Random) -> list[float]:
        return [self.own.near(n, source) for n in range(self.starts[index], self.starts[index + 1])]

    def draw(self, index: int, source: random.Random) -> list[float]:
        common = self.common.near(index, source)
        return [common + own for own in self._own(index, source)]


@dataclass(frozen=True)
class Noise:
    name: str
    call_us: float
    """Of the candidate."""
    planned: int
    """Rounds, as the judge plans them for this case."""
    round_s: float
    """What one takes, with its share of the warm-up."""
    sides: tuple[_Calls, _Calls]
    walls: tuple[_Walls, _Walls, _Walls]
    """Reference, candidate, empty."""
    control: bool = False
    """Both sides did the same. So if the candidate's batches took longer, that is not put right here."""

    @property
    def wall_noise(self) -> float:
        """Of a round's difference of the sides on the host wall clock, over the candidate's time."""
        theirs, ours, _ = self.walls
        return Smooth([theirs.of_round(n) - ours.of_round(n) for n in range(ours.rounds)]).spread / self.call_us

    def draw(self, rounds: int, source: random.Random) -> list[Drawn]:
        """Without a gain: what the two sides usually take is the same."""
        drawn = [self._round(source) for _ in range(rounds)]
        ahead, behind_us = self._middle
        return [
            one._replace(
                candidate=[x * ahead for x in one.candidate],
                reference_walls_us=[us + behind_us for us in one.reference_walls_us],
            )
            for one in drawn
        ]

    def _round(self, source: random.Random) -> Drawn:
        index, at = source.randrange(len(self.sides[0].starts) - 1), source.randrange(self.walls[1].rounds)
        reference, candidate = ([math.exp(x) for x in side.draw(index, source)] for side in self.sides)
        return Drawn(reference, candidate, *(wall.draw(at, source) for wall in self.walls))

    @cached_property
    def _middle(self) -> tuple[float, float]:
        """Of many rounds: by how much the candidate is ahead on the device, and behind on the host wall clock."""
        source = random.Random(self.name)
        many = [self._round(source) for _ in range(1000)]
        ahead = statistics.median(x / y for one in many for x, y in zip(*one[:2], strict=True))
        return ahead, 0.0 if self.control else self.walls[1].all.usual() - self.walls[0].all.usual()


def noise_of(record: Mapping[str, Any], *, control: bool = False) -> Noise | None:
    """None where there was no time, where calls are of several kinds, or where the host wall clock was kept otherwise then."""
    timing, problem = record["timing"], get(record["problem"]["id"])
    if not timing or problem.kinds or not any(timing.get("empty_walls_us") or ()):
        return None
    samples = [timing[f"{side}_samples_us"] for side in ("reference", "candidate")]
    rounds, batches = len(samples[0]), len(timing["candidate_walls_us"])
    sides = [_Calls([[math.log(us / _median(side)) for us in one] for one in side]) for side in samples]
    # Half of a round are the queued batches, of which there may be more.
    round_s = record["stage_seconds"]["timing"] / (rounds + max(0, batches - rounds) / 2)
    repeats = len(timing["reference_walls_us"]) // batches
    if repeats == 1 and not problem.mutates:
        batch_us, empty_us = (
            len(samples[0][0]) * _median([timing[f"{name}_walls_us"]]) for name in ("reference", "empty")
        )
        repeats = repeats_for(batch_us, (batch_us + empty_us) / 1e6 + 2 * WAKE_S, round_s / 4)
    reference, candidate, empty = (
        _Walls([values[each * n : each * (n + 1)] for n in range(batches)], 1 if name == "candidate" else repeats)
        for name in ("reference", "candidate", "empty")
        if (values := timing[f"{name}_walls_us"]) and (each := len(values) // batches)
    )
    return Noise(
        name=f"{record['problem']['id']:02d} {record['size']}, {record['ranks']} ranks",
        call_us=_median(samples[1]),
        planned=planned_rounds(record),
        round_s=round_s,
        sides=(sides[0], sides[1]),
        walls=(reference, candidate, empty),
        control=control,
    )


def measured_noise(paths: Sequence[Path]) -> list[Noise]:
    """Of each case, as the last of these files has it."""
    found = {}
    for record in _read(paths):
        if noise := noise_of(record, control=paths == CONTROL):
            found[_case(record)] = noise
    return list(found.values())


def planned_rounds(record: Mapping[str, Any]) -> int:
    """What the judge plans for the case, whatever was made."""
    problem, size, ranks = get(record["problem"]["id"]), record["size"], record["ranks"]
    bytes_of_all = ranks * problem.argument_bytes(size, ranks, problem.default_dtype)
    return Pace(plan("standard"), 1 << 40, bytes_of_all, CallBytes(0, 0)).timing().rounds


def _read(paths: Sequence[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths if path.exists() for line in path.read_text().splitlines()]


def slim(record: Mapping[str, Any]) -> dict[str, Any]:
    """What is needed here of a verdict, or of a record of `window_noise.py`."""
    timing = {key: value for key, value in record["timing"].items() if key in NEEDED}
    kept = {key: record[key] for key in ("size", "ranks", "platform", "hardware", "started_at") if key in record}
    who = {"problem": {"id": record["problem"]["id"]}, "candidate": {"file": record["candidate"]["file"]}}
    return who | kept | {"timing": timing, "stage_seconds": {"timing": record["stage_seconds"]["timing"]}}


def _case(record: Mapping[str, Any]) -> tuple[int, str, int]:
    return record["problem"]["id"], record["size"], record["ranks"]


def _median(rounds: Sequence[Sequence[float]]) -> float:
    return statistics.median(us for one in rounds for us in one)


# -- noise that nobody has measured ------------------------------------------------------------------------------------


class Side(Protocol):
    def __call__(self, number: int, source: random.Random, state: dict[str, float]) -> list[float]: ...


def _two_values(number: int, source: random.Random, state: dict[str, float]) -> list[float]:
    return [source.choice((1.0, 1.08)) for _ in range(CALLS)]


def _two_values_by_round(number: int, source: random.Random, state: dict[str, float]) -> list[float]:
    usual = source.choice((1.0, 1.08))
    return [usual * math.exp(source.gauss(0, 0.01)) for _ in range(CALLS)]


def _heavy_tails(number: int, source: random.Random, state: dict[str, float]) -> list[float]:
    """Without a variance, and some without a mean."""
    return [1 + 0.02 * source.paretovariate(1.0) for _ in range(CALLS)]


def _drift(number: int, source: random.Random, state: dict[str, float]) -> list[float]:
    return [(1 + 0.02 * number) * math.exp(source.gauss(0, 0.03)) for _ in range(CALLS)]


def _correlated(number: int, source: random.Random, state: dict[str, float]) -> list[float]:
    """Each side wanders by itself: half of what a round is off by is left in the next."""
    state["off"] = 0.5 * state.get("off", 0.0) + source.gauss(0, 0.01)
    return [math.exp(state["off"] + source.gauss(0, 0.02)) for _ in range(CALLS)]


CALLS = 2
"""In a round, as at production sizes: the fewest."""
HOSTILE: dict[str, Side] = {
    "each call takes one of two times, 8 % apart": _two_values,
    "each round takes one of two times, 8 % apart": _two_values_by_round,
    "tails without a mean": _heavy_tails,
    "drift of 2 % a round, common to both sides": _drift,
    "rounds correlated by 0.5, each side by itself": _correlated,
}

# -- starts ------------------------------------------------------------------------------------------------------------

TOGETHER = timedelta(minutes=10)
"""Starts with no more between one and the next are of one machine in one state, as far as anybody knows."""
LEAST_STARTS = 3
MANY_KERNELS = ("54 reference, paper, 8 ranks", "81 reference, paper, 8 ranks", "81 baseline, paper, 8 ranks")
"""Many kernels a call, on each of eight ranks that share a GPU. Why their starts differ by a tenth nobody knows: they are not
drawn from, and the judge's interval does not cover them."""


def starts_of(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Of the problem's own functions, with what one says of itself where it was the candidate too."""
    timing, other = record["timing"], record["timing"].get("other")
    case = {"problem": record["problem"]["id"], "size": record["size"], "ranks": record["ranks"]}
    start = {"started_at": record.get("started_at"), "judge": (record.get("suite") or {}).get("judge")}
    us = timing.get("reference_us") or _median(timing["reference_samples_us"])
    control = {}
    if record["candidate"]["file"] == "library_nccl.py":
        samples = Paired(timing["reference_samples_us"], timing["candidate_samples_us"])
        control["control"] = estimate(samples).rounds.value
    yield case | {"function": timing.get("against", "reference")} | start | {"us": us} | control
    if other:
        yield case | {"function": other["against"]} | start | {"us": other["us"]}


class Spread(NamedTuple):
    value: float
    """A standard deviation, of the logarithm."""
    degrees: int


class Starts(NamedTuple):
    """Of one side's time, for calls of a class of lengths."""

    cases: dict[str, Spread]
    """Whenever they were."""
    outside: dict[str, Spread]
    """Of `MANY_KERNELS`."""
    together: Spread
    """Of starts close to each other, all cases pooled."""
    control: Spread
    """Of both sides of one evaluation against each other, which have the machine and the minute in common."""

    @property
    def any_day(self) -> Spread:
        return _pooled(self.cases.values())

    def draw(self, source: random.Random) -> tuple[float, float]:
        """Factors for the two sides of an evaluation."""
        spread = source.choice(list(self.cases.values())).value
        return math.exp(source.gauss(0, spread)), math.exp(source.gauss(0, spread))


@cache
def starts(*, long: bool) -> Starts:
    every: dict[str, list[dict[str, Any]]] = {}
    for row in _read([STARTS]):
        every.setdefault(f"{row['problem']:02d} {row['function']}, {row['size']}, {row['ranks']} ranks", []).append(row)
    here = {
        name: rows
        for name, rows in every.items()
        if len(rows) >= LEAST_STARTS and (statistics.median(row["us"] for row in rows) >= LONG_US) == long
    }
    outside = {name: _spread(here.pop(name)) for name in MANY_KERNELS if name in here}
    together = [_spread(some) for rows in here.values() for some in _together(rows) if len(some) > 1]
    controls = [math.log(row["control"]) for rows in here.values() for row in rows if "control" in row]
    off = math.sqrt(statistics.fmean(x * x for x in controls) / 2)  # of two sides; the mean is known to be 0
    cases = {name: _spread(rows) for name, rows in here.items()}
    return Starts(cases, outside, _pooled(together), Spread(off, len(controls)))


def _together(rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = []
    last = datetime.min
    for row in sorted((row for row in rows if row["started_at"]), key=lambda row: row["started_at"]):
        at = datetime.fromisoformat(row["started_at"]).replace(tzinfo=None)
        if at - last > TOGETHER:
            found.append([])
        found[-1].append(row)
        last = at
    return found


def _spread(rows: Sequence[dict[str, Any]]) -> Spread:
    return Spread(statistics.stdev(math.log(row["us"]) for row in rows), len(rows) - 1)


def _pooled(spreads: Iterable[Spread]) -> Spread:
    every = list(spreads)
    degrees = sum(one.degrees for one in every)
    return Spread(math.sqrt(math.fsum(one.degrees * one.value**2 for one in every) / degrees), degrees)


if __name__ == "__main__":
    as_starts = sys.argv[1] == "--starts"
    for verdict in _read([Path(name) for name in sys.argv[1 + as_starts :]]):
        if verdict["timing"]:
            for kept in starts_of(verdict) if as_starts else [slim(verdict)] if noise_of(verdict) else []:
                print(json.dumps(kept))
