"""Concludes records from before calls had kinds as the judge does it today: old and new figures side by side."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from noise import OLDER

from pkb.judge.timing.statistics import Paired, estimate
from pkb.problems import get


class Anew(NamedTuple):
    name: str
    then: tuple[float, float, float]
    now: tuple[float, float, float]
    kinds: dict[str, float]


def anew(path: Path = OLDER[0]) -> list[Anew]:
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
