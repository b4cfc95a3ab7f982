"""After timing: a few calls of both sides with the profiler on, to say what moved the data and how much of it was hidden.

It describes and never decides: a candidate that fails here has been judged already, and its records are its own claim. What
cannot be had is left out, with the reason among the verdict's checks.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from pkb.judge.crew.failure import CrewFailure
from pkb.judge.decision import Decided, malformed_report
from pkb.judge.exchange import Case, Exchange
from pkb.judge.profile.activity import Record, Unclear, analyse, split_calls
from pkb.judge.profile.roles import Expected, is_library
from pkb.judge.reports import mapping
from pkb.judge.stages.correctness import communication
from pkb.types.profile import Profile, SideProfile
from pkb.types.verdict import Communication, Stage

CALLS = 3
COVER_US = 5_000.0
"""The device is kept busy this long before a call: launching is slow under the profiler, and gaps of its making would show."""
MAX_RECORDS = 6000
MAX_NAMES = 2000
MAX_NAME = 200
MAX_NS = 600_000_000_000
KINDS = frozenset({"kernel", "memcpy", "memset"})
NOTE = (
    f"{CALLS} calls of each side with the profiler on, each begun together by all ranks with cold caches; what the candidate's "
    "ranks say is their own claim"
)


class Observed(NamedTuple):
    profile: Profile | None
    communication: Communication
    """What the profiled calls showed; only `library` adds to what is known."""
    check: str
    """For the verdict's list of checks."""
    broken: bool = False
    """A side failed, so that no further call can be asked of these ranks."""


class Claimed(NamedTuple):
    """A rank's report, of the right form."""

    records: list[Record]
    left_out: int


def profile_calls(exchange: Exchange, case: Case, *, expected: Expected, progress: Callable[[str], None]) -> Observed:
    """Fresh data, as in every stage. The outputs are dropped unread: nothing here could make them right or wrong."""
    progress("profile")
    try:
        slots = exchange.deliver(case, CALLS, keep=True)
        schedule: dict[str, Any] = {"aligned": True, "cover_us": COVER_US, "records": True}
        reference = exchange.run_oracle(slots, **schedule)
        candidate = exchange.run_candidate(slots, extra_s=30, **schedule)
        exchange.drop(keep_memory=True)
    except CrewFailure as failure:
        who = "candidate's" if failure.role == "candidate" else "oracle's"
        why = f"the {who} ranks failed under the profiler: {str(failure)[:300]}"
        return Observed(None, Communication.NONE, f"not profiled: {why}", broken=True)
    claims = {rank: read_claim(answer, rank=rank) for rank, answer in candidate.items()}
    library = communication(candidate) is Communication.LIBRARY
    library = library or any(is_library(record.name) for claim in claims.values() for record in claim.records)
    theirs, why_not_theirs = _side(claims, expected)
    ours, why_not_ours = _side({rank: read_claim(answer, rank=rank) for rank, answer in reference.items()}, Expected())
    seen = Communication.LIBRARY if library else Communication.NONE
    if theirs is None and ours is None:
        return Observed(None, seen, f"not profiled: {why_not_theirs}")
    missing = [f"no {side}: {why}" for side, why in (("candidate", why_not_theirs), ("reference", why_not_ours)) if why]
    return Observed(Profile(theirs, ours, "; ".join([NOTE, *missing])), seen, f"profiled: {CALLS} calls of each side")


def _side(claims: dict[int, Claimed], expected: Expected) -> tuple[SideProfile | None, str]:
    try:
        by_rank = {rank: split_calls(claim.records, CALLS) for rank, claim in claims.items()}
        return analyse(by_rank, expected, left_out=sum(claim.left_out for claim in claims.values())), ""
    except Unclear as why:
        return None, str(why)


def read_claim(answer: dict[str, Any], *, rank: int) -> Claimed:
    """Numbers and names in bounds. A report of the wrong form was not written by our code: the rank has been tampered with.

    A single record with odd values is left out instead, since a profiler can err without anybody's help.
    """
    claimed = mapping(answer, "activity", rank=rank, stage=Stage.PROFILE)
    names, rows, left_out = claimed.get("names", []), claimed.get("records", []), claimed.get("left_out", 0)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _malformed(rank, "names that are no list of strings")
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 6 for row in rows):
        raise _malformed(rank, "records that are no list of records")
    if type(left_out) is not int:
        raise _malformed(rank, "a number of records left out that is none")
    names = [name[:MAX_NAME] for name in names[:MAX_NAMES]]
    records = [record for row in rows[:MAX_RECORDS] if (record := _record(row, names)) is not None]
    return Claimed(records, max(0, min(left_out, MAX_NS)) + len(rows) - len(records))


def _record(row: list[Any], names: list[str]) -> Record | None:
    number, kind, start_ns, duration_ns, stream, copied = row
    whole = all(type(value) is int and 0 <= value <= MAX_NS for value in (number, start_ns, duration_ns, stream))
    if not whole or number >= len(names) or not isinstance(kind, str) or kind not in KINDS:
        return None
    sized = type(copied) is int and 0 <= copied < 1 << 50
    return Record(names[number], kind, start_ns, duration_ns, stream, copied if sized else None)


def _malformed(rank: int, text: str) -> Decided:
    return malformed_report(rank, Stage.PROFILE, text)
