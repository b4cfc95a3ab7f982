"""From the records of a device to numbers: which kernels a call ran, what they were for, how much communication was hidden.

Pure analysis. A batch is profiled like a timed one (`aligned`, see docs/measuring.md), so each call is preceded on the
device by the harness's own kernels: a spin, the opening of arguments, a flush and a barrier; they separate the calls and are
taken out.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from pkb.judge.profile.roles import Expected, KernelRole, base_name, is_barrier, is_peer_copy, role_of
from pkb.types.profile import KernelUse, ObservedPath, RankProfile, Role, SideProfile

TIMELINE_RECORDS = 200
TOP = 10
NAME_SHOWN = 100
"""Characters of a name that a verdict keeps: what follows are template arguments."""
OPENING = "open_arguments"
APART_NS = 10_000_000_000
"""Ranks begin a call together: clocks that differ by more are not one clock."""
Interval = tuple[int, int]


class Record(NamedTuple):
    """One thing that ran on a device."""

    name: str
    kind: str
    start_ns: int
    duration_ns: int
    stream: int
    bytes: int | None = None

    @property
    def interval(self) -> Interval:
        return self.start_ns, self.start_ns + self.duration_ns


class Unclear(Exception):
    """The records do not show what they should; the text says what is missing."""


def split_calls(records: Iterable[Record], calls: int) -> list[list[Record]]:
    """The records of each call, without the harness's own.

    Before a call the harness's spin is followed on its stream by the opening of arguments, a flush and a barrier, which tells
    it from a candidate's own.
    """
    ordered = sorted(records, key=lambda record: record.interval)
    spins = {
        i: own
        for i, record in enumerate(ordered)
        if base_name(record.name) == "spin_kernel" and (own := _begun(ordered, i))
    }
    if len(spins) != calls:
        raise Unclear(f"{calls} calls were profiled and {len(spins)} beginnings found in {len(ordered)} records")
    return [
        [ordered[i] for i in range(begin + 1, end) if i not in spins[begin]]
        for begin, end in pairwise([*spins, len(ordered)])
    ]


def _begun(ordered: Sequence[Record], spin: int) -> set[int]:
    """The harness's records behind this spin; none if it is not the harness's."""
    own: set[int] = set()
    flushed = False
    for i in range(spin + 1, len(ordered)):
        record = ordered[i]
        if record.stream != ordered[spin].stream:
            continue
        own.add(i)
        if flushed:
            return own if is_barrier(record.name) else set()
        if base_name(record.name) != OPENING:
            if "elementwise" not in record.name:
                return set()
            flushed = True
    return set()


# -- intervals ------------------------------------------------------------------------------------------------------------


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same points as disjoint intervals in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def length(intervals: Iterable[Interval]) -> int:
    """Of their union."""
    return sum(end - start for start, end in union(intervals))


def common(left: Iterable[Interval], right: Iterable[Interval]) -> int:
    """How long both unions have something: |A| + |B| - |A or B|."""
    left, right = list(left), list(right)
    return length(left) + length(right) - length([*left, *right])


# -- one side -------------------------------------------------------------------------------------------------------------


def analyse(
    by_rank: dict[int, list[list[Record]]],
    expected: Expected,
    *,
    left_out: int = 0,
    zeros_ns: Mapping[int, int] | None = None,
) -> SideProfile:
    """One side's calls; `by_rank` holds the records of each call of each rank, whose times count from `zeros_ns`."""
    calls = len(next(iter(by_rank.values())))
    everything = [record for parts in by_rank.values() for part in parts for record in part]
    if not everything:
        raise Unclear("no kernel, copy or fill was recorded within the calls")
    roles = {record.name: role_of(record.name, record.kind, expected) for record in everything}
    begins = _begins_us({rank: parts[-1] for rank, parts in by_rank.items()}, zeros_ns or {})
    ranks = tuple(
        replace(_rank_profile(rank, parts, roles), begins_us=begins.get(rank))
        for rank, parts in sorted(by_rank.items())
    )
    shares = calls * len(ranks)
    copies = [record for record in everything if record.kind == "memcpy"]
    overlap, why = _overlap(ranks, roles, expected)

    def mean(name: str) -> float:
        return round(sum(getattr(rank, name) for rank in ranks) / len(ranks), 3)

    return SideProfile(
        calls=calls,
        kernels_per_call=mean("kernels_per_call"),
        copies_per_call=mean("copies_per_call"),
        fills_per_call=mean("fills_per_call"),
        copied_bytes_per_call=_total_bytes(copies, shares),
        busy_us=mean("busy_us"),
        communication_us=mean("communication_us"),
        compute_us=mean("compute_us"),
        fused_us=mean("fused_us"),
        overlap=overlap,
        overlap_note=why,
        fused=tuple(sorted({shown(name) for name, named in roles.items() if named.role is Role.FUSED})),
        top=_top(everything, roles, shares),
        observed_paths=_paths(everything, roles, expected, shares),
        ranks=ranks,
        left_out=left_out,
    )


def _rank_profile(rank: int, parts: list[list[Record]], roles: dict[str, KernelRole]) -> RankProfile:
    records = [record for part in parts for record in part]
    of_role: dict[Role, list[Interval]] = defaultdict(list)
    for record in records:
        of_role[roles[record.name].role].append(record.interval)

    def per_call_us(nanoseconds: int) -> float:
        return round(nanoseconds / 1e3 / len(parts), 3)

    def per_call(kind: str) -> float:
        return round(sum(record.kind == kind for record in records) / len(parts), 3)

    last = parts[-1][:TIMELINE_RECORDS]
    zero = min((record.start_ns for record in last), default=0)
    return RankProfile(
        rank=rank,
        kernels_per_call=per_call("kernel"),
        copies_per_call=per_call("memcpy"),
        fills_per_call=per_call("memset"),
        busy_us=per_call_us(length(record.interval for record in records)),
        communication_us=per_call_us(length(of_role[Role.COMMUNICATION])),
        compute_us=per_call_us(length(of_role[Role.COMPUTE])),
        fused_us=per_call_us(length(of_role[Role.FUSED])),
        hidden_us=per_call_us(common(of_role[Role.COMMUNICATION], of_role[Role.COMPUTE])),
        timeline=tuple(
            ((r.start_ns - zero) / 1e3, r.duration_ns / 1e3, shown(r.name), roles[r.name].role.value) for r in last
        ),
    )


def _begins_us(last: Mapping[int, list[Record]], zeros_ns: Mapping[int, int]) -> dict[int, float]:
    """When each rank's last call began, on one time base; nothing where a rank's clock is not known or not the others'."""
    if not all(zeros_ns.get(rank) for rank in last):
        return {}
    found = {rank: zeros_ns[rank] + min(r.start_ns for r in records) for rank, records in last.items() if records}
    first = min(found.values(), default=0)
    if max(found.values(), default=0) - first > APART_NS:
        return {}
    return {rank: (began - first) / 1e3 for rank, began in found.items()}


def _overlap(
    ranks: tuple[RankProfile, ...], roles: dict[str, KernelRole], expected: Expected
) -> tuple[float | None, str]:
    """Hidden communication over communication, both added up over the ranks; or why there is no such number."""
    communication = sum(rank.communication_us for rank in ranks)
    if any(named.role is Role.FUSED for named in roles.values()):
        return None, "a kernel communicates and computes at once: what it hides cannot be seen from outside"
    if "unknown" in expected.paths:
        return None, "the candidate's CUDA was not read, so its kernels are not told apart: pip install 'pkb[analysis]'"
    unseen = sorted(expected.on_sms - {path for named in roles.values() for path in named.paths})
    if unseen:
        return None, f"by its text it uses {', '.join(unseen)}, but none of the kernels that ran is known to"
    if communication == 0:
        return None, "no record was recognised as communication"
    if not any(rank.compute_us for rank in ranks):
        return None, "nothing else ran: there was nothing to hide the communication under"
    return round(min(1.0, sum(rank.hidden_us for rank in ranks) / communication), 4), ""


def _total_bytes(copies: list[Record], shares: int) -> float | None:
    if any(record.bytes is None for record in copies):
        return None
    return round(sum(record.bytes or 0 for record in copies) / shares, 1)


def _top(records: list[Record], roles: dict[str, KernelRole], shares: int) -> tuple[KernelUse, ...]:
    by_name: dict[tuple[str, str], list[int]] = defaultdict(list)
    for record in records:
        by_name[record.name, record.kind].append(record.duration_ns)
    longest = sorted(by_name.items(), key=lambda item: (-sum(item[1]), item[0]))[:TOP]
    return tuple(
        KernelUse(
            name=shown(name),
            kind=kind,
            role=roles[name].role,
            per_call=round(len(durations) / shares, 3),
            us_per_call=round(sum(durations) / 1e3 / shares, 3),
        )
        for (name, kind), durations in longest
    )


def _paths(
    records: list[Record], roles: dict[str, KernelRole], expected: Expected, shares: int
) -> tuple[ObservedPath, ...]:
    """Each way once, shown by the record that used it most often."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for record in records:
        for path in roles[record.name].paths:
            counts[path][record.name] += 1
    found = []
    for path, names in sorted(counts.items()):
        name = max(names, key=lambda candidate: (names[candidate], candidate))
        words = f"{shown(name)}, {names[name] / shares:.3g} per call and rank"
        line = expected.lines.get(path)
        if line:
            words += f" (line {line})"
        if path == "copy_engine" and not is_peer_copy(name):
            words += "; taken for a peer's because the text copies from or to peers"
        found.append(ObservedPath(path, words))
    return tuple(found)


def shown(name: str) -> str:
    return name if len(name) <= NAME_SHOWN else name[: NAME_SHOWN - 3] + "..."
