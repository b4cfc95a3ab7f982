"""What a problem's page shows: what it is, who solved it, how near to the limit."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pkb.analysis.samples import best
from pkb.platforms.registry import traits
from pkb.problems.base import Problem
from pkb.report.contenders import Contender
from pkb.report.tries import Try
from pkb.roofline.bounds import cost_of
from pkb.roofline.hardware import built_in_for, load, shared
from pkb.roofline.rows import BoundsRow, bounds_row
from pkb.types.hardware import Hardware

EXAMPLE = "h100x8"
"""The machine whose limits are shown where nothing was measured."""

Entrant = tuple[Contender, Try]


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
    points: list[Point] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Roof:
    label: str
    hardware: str
    intensity: float
    flops: float
    peak: float
    link: float
    reachable_peak: float
    reachable_link: float
    reference_us: float
    points: list[Point]


@dataclass(frozen=True)
class SizeLimits:
    size: str
    numbers: Mapping[str, int]
    why_not: str | None
    bounds: dict[str, BoundsRow] | None
    """By ceilings; None where `why_not` says why."""


@dataclass(frozen=True)
class RooflineLimits:
    hardware: Hardware
    ranks: int
    dtype: str
    measured: bool
    rows: list[SizeLimits]


def problem_context(problem: Problem, entrants: Sequence[Entrant]) -> dict[str, Any]:
    return {
        "problem": problem,
        "paragraphs": paragraphs(problem.docstring),
        "facts": {
            "Parallelism": ", ".join(problem.taxonomy.parallelism),
            "Layer": problem.taxonomy.layer,
            "Stage": ", ".join(problem.taxonomy.stage),
            "Pattern": ", ".join(problem.taxonomy.pattern),
            "To fuse": problem.taxonomy.fusable or "–",
            "From": problem.source,
            "Ranks": ", ".join(map(str, problem.world_sizes)),
            "Dtypes": ", ".join(problem.dtypes),
        },
        "limits": _limits(problem, entrants),
        "best": best_entrant(entrants),
        "chart_data": charts(problem, entrants),
    }


def paragraphs(docstring: str) -> list[str]:
    """Without the title line; each paragraph is one string, its line breaks kept only where they mean something."""
    parts = re.split(r"\n\s*\n", docstring.strip())
    return [part if re.search(r"^(\s|[-*|]|\d+\.)", part, re.MULTILINE) else " ".join(part.split()) for part in parts]


def best_entrant(entrants: Sequence[Entrant]) -> Entrant | None:
    """Kernels of their own come before calls of the library, then the speedup's interval decides."""
    by_sample = {id(each.sample): (contender, each) for contender, each in entrants}
    own = [each.sample for _, each in entrants if each.sample.is_custom]
    found = best(own) or best(each.sample for _, each in entrants)
    return by_sample[id(found)] if found else None


def charts(problem: Problem, entrants: Sequence[Entrant]) -> dict[str, Sequence[ChartCase | Roof]]:
    """Times of correct candidates by case, with the limits of each case; and where they stand under the roof."""
    cases: dict[tuple[str, ...], ChartCase] = {}
    for contender, each in sorted(entrants, key=lambda entrant: _case_order(problem, entrant[1])):
        timing = (each.sample.evaluation or {}).get("timing")
        if not each.sample.is_correct or not timing:
            continue
        platform, hardware, ranks, size, dtype = place = each.sample.conditions
        case = cases.setdefault(
            place, ChartCase(platform, hardware, int(ranks), size, dtype, roofline=timing.get("roofline"))
        )
        case.reference.append(timing["reference_us"])
        case.points.append(
            Point(
                name=contender.name, slug=each.slug, us=timing["candidate_us"], sample=each.task.sample,
                low=timing.get("candidate_p10_us"), high=timing.get("candidate_p90_us"), speedup=timing["speedup"],
                communication=each.sample.communication,
            )
        )  # fmt: skip
    if not cases:
        return {}
    data: dict[str, Sequence[ChartCase | Roof]] = {"cases": list(cases.values())}
    if roofs := [roof for case in cases.values() if (roof := _roof(problem, case))]:
        data["roofs"] = roofs
    return data


def _case_order(problem: Problem, each: Try) -> tuple[Any, ...]:
    platform, hardware, ranks, size, dtype = each.sample.conditions
    sizes = list(problem.sizes)
    return platform, hardware, sizes.index(size) if size in sizes else 99, ranks.zfill(4), dtype


def _roof(problem: Problem, case: ChartCase) -> Roof | None:
    """The roof over this case's arithmetic intensity; None for pure data movement and for unknown hardware."""
    hardware = known_hardware(case.hardware, case.platform)
    if hardware is None or case.dtype not in hardware.ideal.flops or problem.why_not(case.size, case.ranks, case.dtype):
        return None
    cost = cost_of(problem, size=case.size, world_size=case.ranks, dtype=case.dtype)
    link = max(cost.link_sent_bytes, cost.link_received_bytes)
    if cost.flops <= 0 or link <= 0:
        return None
    # On a shared GPU the work of all ranks falls on one device, whose rates are the roof.
    together = case.ranks if hardware.shared_gpu else 1
    return Roof(
        label=f"{case.size}, {case.ranks} ranks, {case.dtype}",
        hardware=hardware.name,
        intensity=cost.flops / link,
        flops=cost.flops * together,
        peak=hardware.ideal.flops[case.dtype],
        link=hardware.ideal.link_bytes_per_s,
        reachable_peak=hardware.reachable.flops[case.dtype],
        reachable_link=hardware.reachable.link_bytes_per_s,
        reference_us=sorted(case.reference)[len(case.reference) // 2],
        points=case.points,
    )


def known_hardware(device: str, platform: str) -> Hardware | None:
    """The datasheet of a device that a verdict names; None for a CPU and for what nobody has described."""
    where = traits(platform)
    found = None if where.device == "cpu" else built_in_for(device)
    return shared(found) if found and where.shares_gpu else found


def _limits(problem: Problem, entrants: Sequence[Entrant]) -> RooflineLimits:
    """The least time of every size: on the machine of the results where its figures are known, else on an example."""
    seen = Counter((each.place("platform"), each.place("hardware"), each.place("ranks")) for _, each in entrants)
    hardware, ranks, measured = load(EXAMPLE), 4, False
    for (platform, device, said), _ in seen.most_common():
        if said.isdigit() and (known := known_hardware(device, platform)):
            hardware, ranks, measured = known, int(said), True
            break
    if ranks not in problem.world_sizes:
        ranks = min(problem.world_sizes, key=lambda number: abs(number - ranks))
    dtype = problem.default_dtype
    rows = []
    for size, numbers in problem.sizes.items():
        why_not = problem.why_not(size, ranks, dtype)
        if ranks > hardware.domain:
            why_not = why_not or f"{hardware.name} joins {hardware.domain} GPUs"
        if dtype not in hardware.ideal.flops:
            why_not = why_not or f"no rate for {dtype} is known"
        bounds = None if why_not else {
            which: bounds_row(problem, size=size, ranks=ranks, dtype=dtype, hardware=hardware, ceilings=which)
            for which in ("ideal", "reachable")
        }  # fmt: skip
        rows.append(SizeLimits(size, numbers, why_not, bounds))
    return RooflineLimits(hardware, ranks, dtype, measured, rows)
