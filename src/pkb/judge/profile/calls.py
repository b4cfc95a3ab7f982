"""After timing: a few calls of both sides with the profiler on, to say what moved the data and how much of it was hidden.

It describes and never decides: a candidate that fails here has been judged already, and its records are its own claim. What
cannot be had is left out, with the reason among the verdict's checks.
"""

from collections.abc import Callable
from typing import NamedTuple

from pkb.judge.crew.failure import CrewFailure, CrewFailureKind
from pkb.judge.decision import from_failure
from pkb.judge.exchange import Exchange, Reports
from pkb.judge.profile.activity import Record, Unclear, analyse, split_calls
from pkb.judge.profile.roles import Expected
from pkb.judge.stages.correctness import communication
from pkb.types.profile import Profile, SideProfile
from pkb.types.protocol.commands import DrawSpec, Schedule
from pkb.types.protocol.limits import is_library
from pkb.types.protocol.replies import Activity
from pkb.types.stock import Against
from pkb.types.verdict import Communication, Stage

CALLS = 3
COVER_US = 5_000.0
"""The device is kept busy this long before a call: launching is slow under the profiler, and gaps of its making would show."""
NOTE = (
    f"{CALLS} calls of each side with the profiler on, each begun together by all ranks with cold caches; what the candidate's "
    "ranks say is their own claim"
)


class ProfiledCalls(NamedTuple):
    profile: Profile | None
    communication: Communication
    """What the profiled calls showed; only `library` adds to what is known."""
    check: str
    """For the verdict's list of checks."""
    broken: bool = False
    """A side failed, so that no further call can be asked of these ranks."""


def profile_calls(
    exchange: Exchange,
    spec: DrawSpec,
    *,
    expected: Expected,
    progress: Callable[[str], None],
    against: Against = "reference",
) -> ProfiledCalls:
    """Fresh data, as in every stage. The outputs are dropped unread: nothing here could make them right or wrong."""
    progress("profile")
    try:
        schedule = Schedule(exchange.deliver(spec, CALLS, keep=True), aligned=True, cover_us=COVER_US)
        reference = exchange.run_oracle(schedule, function=against, records=True)
        candidate = exchange.run_candidate(schedule, extra_s=30, records=True)
        exchange.drop(keep_memory=True)
    except CrewFailure as failure:
        if failure.role == "candidate" and failure.kind is CrewFailureKind.GARBAGE:
            # Not written by our code: the rank has been tampered with.
            raise from_failure(failure, Stage.PROFILE, exchange.candidate.platform.facts()) from failure
        who = "candidate's" if failure.role == "candidate" else "oracle's"
        why = f"the {who} ranks failed under the profiler: {str(failure)[:300]}"
        return ProfiledCalls(None, Communication.NONE, f"not profiled: {why}", broken=True)
    library = communication(candidate) is Communication.LIBRARY
    library = library or any(is_library(name) for name in _names(candidate))
    theirs, why_not_theirs = _side(candidate, expected)
    ours, why_not_ours = _side(reference, Expected())
    seen = Communication.LIBRARY if library else Communication.NONE
    if theirs is None and ours is None:
        return ProfiledCalls(None, seen, f"not profiled: {why_not_theirs}")
    missing = [f"no {side}: {why}" for side, why in (("candidate", why_not_theirs), ("reference", why_not_ours)) if why]
    return ProfiledCalls(
        Profile(theirs, ours, "; ".join([NOTE, *missing])), seen, f"profiled: {CALLS} calls of each side"
    )


def _side(reports: Reports, expected: Expected) -> tuple[SideProfile | None, str]:
    activities = {rank: report.activity or Activity() for rank, report in reports.items()}
    try:
        by_rank = {rank: split_calls(records_of(activity), CALLS) for rank, activity in activities.items()}
        left_out = sum(activity.left_out for activity in activities.values())
        zeros_ns = {rank: activity.began_ns for rank, activity in activities.items()}
        return analyse(by_rank, expected, left_out=left_out, zeros_ns=zeros_ns), ""
    except Unclear as why:
        return None, str(why)


def _names(reports: Reports) -> set[str]:
    """Of what ran on a device."""
    activities = [report.activity for report in reports.values() if report.activity is not None]
    return {record.name for activity in activities for record in records_of(activity)}


def records_of(activity: Activity) -> list[Record]:
    return [
        Record(activity.names[number], kind, start_ns, duration_ns, stream, size)
        for number, kind, start_ns, duration_ns, stream, size in activity.records
    ]
