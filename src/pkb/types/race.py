"""Races: what kinds there are, and what the analyser of recorded calls has proven.

The analyser (`kit/emulated/races`) reads logs that a candidate's processes have written, so what it prints is decoded like a
reply of a rank: types, lengths and ranges are checked before an object exists.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pkb.types.protocol.codec import TAG, AtMost, Between, Malformed, decode
from pkb.types.protocol.limits import MAX_RANKS, MIB

ANALYSIS_BYTES = MIB
"""Of the document that the analyser prints."""
MAX_FINDINGS = 20
MAX_MOMENTS = 40

Rank = Annotated[int, Between(0, MAX_RANKS - 1)]
Number = Annotated[int, Between(0, 1 << 53)]
Line = Annotated[int, Between(0, 1 << 31)]
Word = Annotated[str, AtMost(400)]
Sentence = Annotated[str, AtMost(600)]

RaceSchedule = Literal["both", "together", "late"]
"""How ranks are started in recorded calls: all together, one of them late, or each in turn."""


class RaceKind(StrEnum):
    """What is missing: the first four by the way in which a race was provoked, the others by proof (`PROVEN`)."""

    MISSING_SYNCHRONISATION = "missing_synchronisation"
    MISSING_START_BARRIER = "missing_start_barrier"
    MISSING_END_BARRIER = "missing_end_barrier"
    STALE_READ = "stale_read"
    NO_SYNCHRONISATION = "no_synchronisation"
    SCOPE_TOO_NARROW = "scope_too_narrow"
    RELAXED = "relaxed_where_release_acquire_is_needed"
    ASYNC_PROXY = "async_proxy_without_fence"
    READ_ONLY_CACHE = "read_only_cache"
    REUSED_TOO_EARLY = "buffer_reused_too_early"


PROVEN: Mapping[RaceKind, str] = {
    RaceKind.NO_SYNCHRONISATION: "nothing orders these two accesses",
    RaceKind.SCOPE_TOO_NARROW: "they synchronise with a scope that does not include the other thread",
    RaceKind.RELAXED: "they synchronise by relaxed or volatile accesses, which order nothing else",
    RaceKind.ASYNC_PROXY: "an asynchronous copy and an ordinary access of the same bytes have no proxy fence between them",
    RaceKind.READ_ONLY_CACHE: "a load through the read-only cache reads bytes that are written in the same kernel",
    RaceKind.REUSED_TOO_EARLY: "a buffer is written again while a peer may still read what was in it",
}


@dataclass(frozen=True)
class Access:
    """One of two that race."""

    rank: Rank
    kernel: Word
    """Empty for a host-side operator."""
    block: Number
    thread: Number
    call: Number
    write: bool
    what: Word
    """`st.global.f32`, a plain store, `copy_`."""
    file: Word
    line: Line
    text: Word = ""
    """That line, as the judge reads it in the candidate's file or in a header of the kit's."""
    candidate_line: Line = 0
    """The same line counted in the candidate's file, which holds the CUDA as a string; 0 where it cannot be said."""


@dataclass(frozen=True)
class Site:
    """A place in the source, and the operation there."""

    file: Word
    line: Line
    what: Word
    text: Word = ""
    candidate_line: Line = 0


@dataclass(frozen=True)
class MissingOrder:
    """What should have ordered two accesses, and the operations nearest to doing so."""

    text: Sentence
    first: Site | None
    second: Site | None


@dataclass(frozen=True)
class RaceFinding:
    kind: RaceKind
    count: Number
    """Pairs of accesses by the same two lines."""
    memory: Word
    offset: Number
    bytes: Number
    first: Access
    second: Access
    missing: MissingOrder

    def __post_init__(self) -> None:
        if self.kind not in PROVEN:
            raise ValueError(f"{self.kind} is no kind that can be proven")


@dataclass(frozen=True)
class Moment:
    """A synchronisation, or one of the two accesses, in the order of the trace."""

    rank: Rank
    order: Number
    what: Word
    file: Word
    line: Line
    detail: Sentence


Findings = Annotated[tuple[RaceFinding, ...], AtMost(MAX_FINDINGS)]
Timeline = Annotated[tuple[Moment, ...], AtMost(MAX_MOMENTS)]


@dataclass(frozen=True)
class RaceAnalysis:
    """What the analyser says of one trace."""

    events: Number
    threads: Number
    truncated: bool
    broken: bool
    findings: Findings
    timeline: Timeline
    reason: Sentence = ""
    """Why it is broken."""
    calls: Number | None = None
    """Complete ones, in the log that has the fewest."""

    @property
    def why_not(self) -> str:
        """Why this trace proves nothing, neither a race nor the absence of one: order that was not recorded looks like a
        race."""
        if self.broken:
            return f"a log is broken{f' ({self.reason})' if self.reason else ''}"
        if self.truncated:
            return "a log was full before the calls were over"
        return "" if self.events else "nothing was recorded"


@dataclass(frozen=True)
class WeakExecution:
    """Calls in which what kernels write reaches other ranks late and in any order, as far as the memory model lets it
    (docs/races.md): what happens to rely on more than that may give wrong numbers there."""

    calls: int
    """Whose results were compared with the truth."""
    wrong: str = ""
    """What was, in words; empty where nothing was."""
    why_not: str = ""
    """Why nothing can be said."""

    @property
    def in_words(self) -> str:
        if self.wrong:
            return f"weak execution: {self.wrong}"
        if self.why_not:
            return f"no weak execution: {self.why_not}"
        return f"weak execution: right in {self.calls} {'call' if self.calls == 1 else 'calls'}"


@dataclass(frozen=True)
class RaceProof:
    """Recorded calls, analysed: a proof for the traces that were executed, by the candidate's processes' own account."""

    traces: int
    """That were analysed; a finding ends it."""
    calls: int
    """In each of them."""
    ranks: int
    size: str
    seeds: tuple[int, ...]
    """Of the emulated GPU's schedule, in the order of the traces."""
    schedule: RaceSchedule
    events: int
    """Of all traces."""
    findings: tuple[RaceFinding, ...] = ()
    timeline: tuple[Moment, ...] = ()
    """Around the first finding."""
    own_flags: bool = False
    """Pairs of torch's operators were found that nothing orders but, it may be, flags of the candidate's own, which its Python
    looks at: they do not count."""
    same_stores: bool = False
    """Of verdicts before 2026-11-16: plain stores of one launch to the same bytes were left out. Since then values decide."""
    why_not: str = ""
    """Why there are no more traces than `traces`; nothing is proven if these are none. Empty where there are all."""
    first_calls: bool = False
    """One of the traces began before the candidate was imported, in another start of its ranks."""
    first_why_not: str = ""
    """Why there is none of these, where there should be one."""
    weak: WeakExecution | None = None
    """None where no kernel of a candidate's could be executed so."""

    @property
    def in_words(self) -> str:
        unsaid = "; ".join(
            filter(
                None,
                [self.why_not, self.first_why_not and f"its first calls prove nothing: {self.first_why_not}"],
            )
        )
        if not self.traces:
            return f"races neither proven nor excluded: {unsaid}"
        many = f"{self.traces} {'trace' if self.traces == 1 else 'traces'} of {self.calls} calls at {self.size}"
        many += f" with {self.ranks} ranks ({self.events} events)"
        many += ", one of which covers its first calls" if self.first_calls else ""
        flags = "; operators of torch that only flags of its own can order were left out" if self.own_flags else ""
        flags += "; plain stores of one launch to the same bytes were left out" if self.same_stores else ""
        flags += f"; {unsaid}" if unsaid else ""
        return f"{'race in' if self.findings else 'no race in'} {many}{flags}"

    @property
    def weak_in_words(self) -> str:
        """Empty where there was no weak execution."""
        if self.weak is None:
            return ""
        alone = (
            "; no race is proven that explains it, so it does not count"
            if self.weak.wrong and not self.findings
            else ""
        )
        return f"{self.weak.in_words}{alone}"


OWN_ACCOUNT = "traces are recorded in the candidate's own processes: its host code could have changed them"
_TAGS: Mapping[tuple[str, ...], type] = {
    (): RaceAnalysis,
    ("findings",): RaceFinding,
    ("findings", "first"): Access,
    ("findings", "second"): Access,
    ("findings", "missing"): MissingOrder,
    ("findings", "missing", "first"): Site,
    ("findings", "missing", "second"): Site,
    ("timeline",): Moment,
}
_OURS = {"text": "", "candidate_line": 0}
"""Of an access or a site: what the judge adds, and no analyser says."""
_NOTHING: Mapping[str, Any] = {"events": 0, "threads": 0, "truncated": False, "findings": [], "timeline": []}


def read_analysis(document: bytes) -> RaceAnalysis:
    """What the analyser has printed, or `Malformed`."""
    if len(document) > ANALYSIS_BYTES:
        raise Malformed(f"{len(document)} bytes, {ANALYSIS_BYTES} are allowed")
    try:
        found = json.loads(document)
        if isinstance(found, dict):
            found = {**(_NOTHING if found.get("broken") is True else {}), "reason": "", "calls": None, **found}
        tagged = json.dumps(_tagged(found, ()))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no JSON: {str(error)[:100]}") from None
    return decode(tagged.encode(), [RaceAnalysis])


def _tagged(value: Any, path: tuple[str, ...]) -> Any:
    """With the names of classes that the codec looks for, by place."""
    if isinstance(value, list):
        return [_tagged(item, path) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {name: _tagged(item, (*path, name)) for name, item in value.items()}
    cls = _TAGS.get(path)
    return inner | ({TAG: cls.__name__} if cls else {}) | (_OURS if cls in (Access, Site) else {})
