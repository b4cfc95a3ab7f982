"""What the pictures of a problem's page are drawn from: times by case, and what the hardware allows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pkb.platforms.registry import traits
from pkb.problems.base import Problem
from pkb.report.against import stock_times
from pkb.report.contenders import Entrant
from pkb.report.tries import Try
from pkb.report.words import time_words
from pkb.roofline.bounds import CEILINGS
from pkb.roofline.hardware import built_in_for, shared
from pkb.roofline.rows import BoundsRow, bounds_row
from pkb.types.hardware import Hardware

Place = tuple[float, float]
MOST_PICTURES = 4


@dataclass(frozen=True)
class Point:
    """A correct candidate's time in microseconds."""

    name: str
    slug: str
    us: float
    sample: int
    low: float | None
    high: float | None
    speedup: float
    communication: str


@dataclass(frozen=True)
class ChartCase:
    platform: str
    hardware: str
    ranks: int
    size: str
    dtype: str
    roofline: Mapping[str, float | str | None] | None
    """As the first of its verdicts has it."""
    floor_us: float | None
    points: list[Point] = field(default_factory=list)
    stock: dict[str, list[float]] = field(default_factory=dict)
    """Times of the reference and of the baseline, as far as they were taken."""

    @property
    def stock_us(self) -> dict[str, float]:
        """Medians."""
        return {name: sorted(found)[len(found) // 2] for name, found in sorted(self.stock.items(), reverse=True)}

    @property
    def every_us(self) -> list[float]:
        """All times that a picture of it has to have room for."""
        limits = [(self.roofline or {}).get(name) for name in ("ideal_us", "reachable_us")]
        points = [us for point in self.points for us in (point.us, point.low, point.high) if us]
        return [*points, *self.stock_us.values(), *(float(us) for us in limits if us)]

    def label(self, *, narrow: bool) -> str:
        most = 16 if narrow else 30
        lines = [f"{self.size}, {self.ranks} ranks", f"{self.dtype}, {self.platform}", self.hardware]
        return "\n".join(line if len(line) <= most else line[: most - 1] + "…" for line in lines if line)


@dataclass(frozen=True)
class RoofMark:
    kind: str
    name: str
    x: float
    y: float
    words: str
    slug: str = ""


@dataclass(frozen=True)
class RoofPicture:
    label: str
    x_title: str
    y_title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    marks: Sequence[RoofMark]


def chart_cases(problem: Problem, entrants: Sequence[Entrant]) -> list[ChartCase]:
    """Times of correct candidates by case; none where nothing correct was timed."""
    cases: dict[tuple[str, ...], ChartCase] = {}
    for contender, each in sorted(entrants, key=lambda entrant: _case_order(problem, entrant[1])):
        timing = (each.sample.evaluation or {}).get("timing")
        if not each.sample.is_correct or not timing:
            continue
        platform, hardware, ranks, size, dtype = place = each.sample.conditions
        case = cases.setdefault(
            place,
            ChartCase(
                platform,
                hardware,
                int(ranks),
                size,
                dtype,
                roofline=timing.get("roofline"),
                floor_us=timing.get("floor_us"),
            ),
        )
        for name, us in stock_times(timing).items():
            case.stock.setdefault(name, []).append(us)
        case.points.append(
            Point(
                name=contender.name, slug=each.slug, us=timing["candidate_us"], sample=each.task.sample,
                low=timing.get("candidate_p10_us"), high=timing.get("candidate_p90_us"), speedup=timing["speedup"],
                communication=each.sample.communication,
            )
        )  # fmt: skip
    return list(cases.values())


def _case_order(problem: Problem, each: Try) -> tuple[object, ...]:
    platform, hardware, ranks, size, dtype = each.sample.conditions
    sizes = list(problem.sizes)
    return platform, hardware, sizes.index(size) if size in sizes else 99, ranks.zfill(4), dtype


def known_hardware(device: str, platform: str) -> Hardware | None:
    """The datasheet of a device that a verdict names; None for a CPU and for what nobody has described."""
    where = traits(platform)
    found = None if where.device == "cpu" else built_in_for(device)
    return shared(found) if found and where.shares_gpu else found


def roof_pictures(problem: Problem, cases: Sequence[ChartCase], *, example: Hardware, ranks: int) -> list[RoofPicture]:
    """One for each machine, number of ranks and dtype with times; where there are none, what the example would allow."""
    groups: dict[tuple[str, str, int, str], list[ChartCase]] = {}
    for case in cases:
        if case.size in problem.sizes:
            groups.setdefault((case.platform, case.hardware, case.ranks, case.dtype), []).append(case)
    found = []
    for (platform, device, number, dtype), members in groups.items():
        hardware = known_hardware(device, platform)
        if traits(platform).device != "cpu" and (picture := _picture(problem, hardware, number, dtype, members)):
            found.append(picture)
    if not found and not groups:
        found = [made for made in [_picture(problem, example, ranks, problem.default_dtype, [])] if made]
    return found[:MOST_PICTURES]


def _picture(
    problem: Problem, hardware: Hardware | None, ranks: int, dtype: str, cases: Sequence[ChartCase]
) -> RoofPicture | None:
    rows = {
        size: bounds_of(problem, size, ranks, dtype, hardware)
        for size in problem.sizes
        if hardware and not why_no_limit(problem, size, ranks, dtype, hardware)
    }
    if not rows:
        return None
    computes = any(bounds["ideal"].binds == "compute" for bounds in rows.values())
    marks = []
    for case in cases:
        if case.size in rows:
            marks += _marks(case, *_place(rows[case.size]["ideal"], computes))
    lines: dict[str, list[tuple[float, float]]] = {}
    for bounds in rows.values():
        ideal = bounds["ideal"]
        x, work = _place(ideal, computes)
        for name, us in (
            ("ideal", ideal.bound_us), ("reachable", bounds["reachable"].bound_us), ("unoverlapped", ideal.unoverlapped_us),
            ("latency", ideal.floor_us),
        ):  # fmt: skip
            if x > 0 and work > 0 and us > 0:
                lines.setdefault(name, []).append((x, 1e6 * work / us))
    if "ideal" not in lines or hardware is None:
        return None
    return RoofPicture(
        label=f"{ranks} ranks, {dtype}, {hardware.title}",
        x_title="bytes of a rank over the link, a call",
        y_title="FLOP/s of a rank" if computes else "bytes/s of a rank over the link",
        lines={name: sorted(line) for name, line in lines.items()}
        | {"latency": _below(lines["latency"], lines["ideal"])},
        marks=marks,
    )


def _below(line: Sequence[Place], limit: Sequence[Place], *, factor: float = 2.0) -> list[Place]:
    """A line up to where it leaves the limit below: latency of large sizes would only make the picture tall."""
    kept: list[Place] = []
    for (x, y), (_, most) in zip(sorted(line), sorted(limit), strict=True):
        if y <= factor * most:
            kept.append((x, y))
            continue
        if kept:  # both lines are straight between two sizes, on axes of logarithms
            (x0, y0), most0 = kept[-1], dict(limit)[kept[-1][0]]
            rise, room = math.log(y / y0) - math.log(most / most0), math.log(factor * most0 / y0)
            share = min(1.0, room / rise) if rise > 0 else 1.0
            kept.append((x0 * (x / x0) ** share, y0 * (y / y0) ** share))
        break
    return kept


def bounds_of(problem: Problem, size: str, ranks: int, dtype: str, hardware: Hardware) -> dict[str, BoundsRow]:
    """By ceilings."""
    return {
        which: bounds_row(problem, size=size, ranks=ranks, dtype=dtype, hardware=hardware, ceilings=which)
        for which in CEILINGS
    }


def why_no_limit(problem: Problem, size: str, ranks: int, dtype: str, hardware: Hardware) -> str | None:
    """Why the roofline has no row for this size, or None."""
    if why_not := problem.why_not(size, ranks, dtype):
        return why_not
    if ranks > hardware.domain:
        return f"{hardware.name} joins {hardware.domain} GPUs"
    return None if dtype in hardware.ideal.flops else f"no rate for {dtype} is known"


def _place(row: BoundsRow, computes: bool) -> tuple[float, float]:
    """Where a size stands: bytes over the link (of memory, where none move), and the work that rates are of."""
    link = max(row.link_sent_bytes, row.link_received_bytes)
    return link or row.hbm_bytes, row.flops if computes else link


def _marks(case: ChartCase, x: float, work: float) -> list[RoofMark]:
    if x <= 0 or work <= 0:
        return []

    def mark(kind: str, name: str, us: float, slug: str = "") -> RoofMark:
        return RoofMark(kind, name, x, 1e6 * work / us, f"{name}: {time_words(us)}, {case.size}", slug)

    found = [mark("floor", "floor", case.floor_us)] if case.floor_us else []
    found += [mark("stock", name, us) for name, us in case.stock_us.items()]
    return found + [mark("candidate", point.name, point.us, point.slug) for point in case.points]
