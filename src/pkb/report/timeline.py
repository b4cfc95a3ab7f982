"""What ran on each rank's device during one call, from a verdict's profile: for the picture, and as a trace for Perfetto."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pkb.report.words import visible

RECORDS = 600
"""Of one rank: more would be narrower than a pixel and heavy on the page."""
SIDES = ("candidate", "reference")
Record = tuple[float, float, str, str]
"""Start, length, name and role of what a device did."""


@dataclass(frozen=True)
class RankTimeline:
    rank: int
    begins_us: float | None
    """After the rank that began first; None where the verdict does not say."""
    records: Sequence[Record]
    left_out: int

    @property
    def end_us(self) -> float:
        return (self.begins_us or 0.0) + max((start + us for start, us, _, _ in self.records), default=0.0)


def read_timelines(profile: Mapping[str, Any]) -> dict[str, list[RankTimeline]]:
    """By side; empty where the verdict has no records. What a verdict holds is the candidate's own claim, as is its form."""
    sides = {side: [_rank(rank) for rank in (profile.get(side) or {}).get("ranks") or ()] for side in SIDES}
    return {side: ranks for side, ranks in sides.items() if any(rank.records for rank in ranks)}


def _rank(said: Mapping[str, Any]) -> RankTimeline:
    records = [
        (float(start), float(us), str(name)[:80], str(role)) for start, us, name, role in said.get("timeline") or ()
    ]
    begins = said.get("begins_us")
    return RankTimeline(
        rank=int(said.get("rank") or 0),
        begins_us=None if begins is None else float(begins),
        records=records[:RECORDS],
        left_out=max(0, len(records) - RECORDS),
    )


def has_one_base(sides: Mapping[str, Sequence[RankTimeline]]) -> bool:
    """Whether all ranks are placed by one clock; verdicts of older versions count each rank from its own first record."""
    return all(rank.begins_us is not None for ranks in sides.values() for rank in ranks if rank.records)


def trace_events(sides: Mapping[str, Sequence[RankTimeline]], *, title: str) -> dict[str, Any]:
    """Trace Event Format: a process for each side and rank, a thread for each lane of records that do not overlap."""
    events: list[dict[str, Any]] = []
    for order, (side, ranks) in enumerate(sides.items()):
        for rank in ranks:
            pid = 1 + 1000 * order + rank.rank
            events.append(_named("process_name", pid, 0, name=f"{side}, rank {rank.rank}"))
            events.append(_named("process_sort_index", pid, 0, sort_index=pid))
            records = sorted(rank.records)
            for (start, us, name, role), lane in zip(records, _lanes(records), strict=True):
                begin = round(start + (rank.begins_us or 0.0), 3)
                events.append(
                    {"name": visible(name), "cat": role, "ph": "X", "ts": begin, "dur": us, "pid": pid, "tid": lane + 1}
                )
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"title": visible(title)}}


def _named(what: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": args}


def _lanes(records: Sequence[Record]) -> list[int]:
    """For each record the first lane that is free then: those of several streams overlap, and a thread's may not."""
    ends: list[float] = []
    lanes = []
    for start, us, _, _ in records:
        lane = next((number for number, end in enumerate(ends) if end <= start), len(ends))
        ends[lane : lane + 1] = [start + us]
        lanes.append(lane)
    return lanes
