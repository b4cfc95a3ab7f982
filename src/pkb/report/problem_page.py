"""What a problem's page shows: what it is, who solved it, how close to the roofline."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pkb.analysis.samples import best
from pkb.problems.base import Problem
from pkb.report import charts
from pkb.report.contenders import Entrant
from pkb.report.roof_data import bounds_of, chart_cases, known_hardware, roof_pictures, why_no_limit
from pkb.roofline.hardware import load
from pkb.roofline.rows import BoundsRow
from pkb.types.hardware import Hardware

EXAMPLE = "h100x8"
"""The machine whose limits are shown where nothing was measured."""


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
    limits = _limits(problem, entrants)
    cases = chart_cases(problem, entrants)
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
        "limits": limits,
        "best": best_entrant(entrants),
        "cases": cases,
        "times_chart": charts.cases(cases),
        "roofs": [
            (picture.label, charts.roof(picture))
            for picture in roof_pictures(problem, cases, example=limits.hardware, ranks=limits.ranks)
        ],
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
        why_not = why_no_limit(problem, size, ranks, dtype, hardware)
        bounds = None if why_not else bounds_of(problem, size, ranks, dtype, hardware)
        rows.append(SizeLimits(size, numbers, why_not, bounds))
    return RooflineLimits(hardware, ranks, dtype, measured, rows)
