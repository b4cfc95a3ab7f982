"""Stage 3: several calls, each on fresh data, every output of every rank compared in full."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from pkb.judge.budgets import affordable_trials
from pkb.judge.crew.failure import CrewFailure
from pkb.judge.decision import Decided, bad_output, wrong
from pkb.judge.exchange import CallBytes, Exchange, Reports
from pkb.judge.stages.late_output import require_whole
from pkb.types.difference import DifferenceKind, Pattern
from pkb.types.protocol.commands import DrawSpec, Schedule
from pkb.types.verdict import Communication, Evidence, Failure, FailureKind, Mismatch, Stage, Verdict

PROFILER_S = 20.0
"""What starting torch's profiler may add to a call that is observed."""


class Checked(NamedTuple):
    communication: Communication
    worst_ratio: float
    """Error over tolerance, the worst of all calls and ranks."""
    first_call_us: float
    """Wall-clock time of the first call, which pays for lazy building, compilation and rendezvous."""
    call_bytes: CallBytes
    calls: int
    """How many were made: all that were asked for, unless one of them moves gigabytes."""
    fidelity: Mapping[str, str]
    """Of what ran on an emulated GPU."""
    library: tuple[str, ...]
    """Kernels of communication libraries that ran, and their functions that the candidate's own libraries call."""


def check_calls(
    exchange: Exchange,
    spec: DrawSpec,
    *,
    trials: int,
    words: str,
    progress: Callable[[str], None],
    first_call_extra_s: float = 0.0,
    observe: bool = False,
    argument_bytes: int = 0,
    same_bits: bool = False,
    mutates: bool = False,
) -> Checked:
    """Run the trials one by one. What moves the data is observed in the last: set-up may happen in the first.

    `argument_bytes` are those of one call, all ranks together, where that may be so much that fewer trials must do.
    `same_bits`: what is right within the tolerance must also be the same on all ranks. `mutates`: a call changes its
    arguments, so that made once more it would be another call.
    """
    seen, worst, first_call_us, call_bytes = Communication.UNKNOWN, 0.0, 0.0, CallBytes(0, 0)
    executed: dict[str, str] = {}
    library: tuple[str, ...] = ()
    trial, quickest_s = 0, math.inf
    while trial < trials:
        progress(f"correctness: {words}, call {trial + 1} of {trials}")
        slots = exchange.deliver(spec, 1)
        last = trial == trials - 1
        profile = last and observe
        start = time.perf_counter()
        reports = exchange.run_candidate(
            Schedule(slots, digests=True),
            inspect=True,
            profile=profile,
            extra_s=PROFILER_S if profile else 0.0,
            compiling_s=first_call_extra_s if trial == 0 else 0.0,
        )
        quickest_s = min(quickest_s, time.perf_counter() - start)
        first_call_us = first_call_us or 1e6 * quickest_s
        if not spec.as_published:
            check_conduct(reports, Stage.CORRECTNESS)
        executed = fidelity(reports)
        call_bytes = exchange.know_truth(slots)
        exchange.has_answered(reference_s=call_bytes.truth_s, first_call_s=first_call_us / 1e6, call_s=quickest_s)
        outcome = exchange.compare(slots, words=f"{words}, trial {trial}")
        if outcome.rejected:
            raise bad_output(outcome.rejected, Stage.CORRECTNESS)
        if outcome.mismatch:
            again = outcome.mismatch if mutates else _once_more(exchange, slots, outcome.mismatch)
            raise wrong(again, Stage.CORRECTNESS)
        require_whole(outcome, slots, reports, Stage.CORRECTNESS)
        if same_bits and (mismatch := bits_mismatch(outcome.digests, words=f"{words}, trial {trial}")):
            raise wrong(mismatch, Stage.CORRECTNESS)
        worst = max(worst, outcome.worst_ratio)
        if last:
            seen = communication(reports)
            library = library_events(reports)
        exchange.drop()
        trial += 1
        trials = affordable_trials(trials, argument_bytes=argument_bytes, output_bytes=call_bytes.outputs)
    return Checked(seen, worst, first_call_us, call_bytes, trials, executed, library)


def bits_mismatch(digests: Mapping[tuple[int, int], tuple[str, ...]], *, words: str) -> Mismatch | None:
    """Which ranks do not hold the same bits as rank 0, and in which output; by call and rank."""
    by_rank = {rank: digest for (_, rank), digest in digests.items()}
    first = by_rank[min(by_rank)]
    others = tuple(rank for rank, digest in sorted(by_rank.items()) if digest != first)
    if not others:
        return None
    index = next(i for i, pair in enumerate(zip(first, by_rank[others[0]], strict=True)) if pair[0] != pair[1])
    return Mismatch(
        case=words,
        ranks=others,
        rank=others[0],
        output="the result" if len(first) == 1 else f"output {index}",
        what=f"within the tolerance, but not the same bits as on rank {min(by_rank)}, which this problem promises",
        difference=DifferenceKind.BITS,
        patterns=(Pattern.SOME_RANKS,),
    )


def _once_more(exchange: Exchange, slots: tuple[int, ...], mismatch: Mismatch) -> Mismatch:
    """Make the wrong call again, for a hint: a candidate that does not wait for its peers reads what the call before has left,
    which now is the same call's data. Whatever happens, the verdict stays."""
    if mismatch.difference is not DifferenceKind.VALUES:
        return mismatch
    try:
        exchange.run_candidate(Schedule(slots))
        again = exchange.compare(slots, words="once more")
    except CrewFailure:
        return mismatch
    if again.rejected or again.mismatch:
        return mismatch
    return replace(mismatch, patterns=(*mismatch.patterns, Pattern.RIGHT_WHEN_REPEATED))


def check_conduct(reports: Reports, stage: Stage) -> None:
    """Arguments must be left unchanged, and results must not share memory with them."""
    for rank, report in reports.items():
        if any(report.changed):
            raise Decided(
                Verdict.REJECTED,
                stage,
                f"rank {rank} changed its arguments in place; this problem forbids it",
                Evidence(
                    failing_ranks=(rank,),
                    failure=Failure(FailureKind.CHANGED_ARGUMENTS, "an argument has other contents", rank),
                ),
            )
        whose = next((f"its argument {name}" for names in report.aliases for name in names), "")
        whose = whose or "another rank" * any(report.borrowed)
        if whose:
            raise Decided(
                Verdict.REJECTED,
                stage,
                f"rank {rank} returns memory of {whose}; the result must be a tensor of its own",
                Evidence(
                    failing_ranks=(rank,),
                    failure=Failure(FailureKind.ALIASED_OUTPUT, f"shares memory with {whose}", rank),
                ),
            )


def fidelity(reports: Reports) -> dict[str, str]:
    """How well each instruction was modelled that any rank reports to have executed."""
    every = [report.observed.instructions for report in reports.values() if report.observed is not None]
    return dict(sorted((name, how) for instructions in every for name, how in instructions.items()))


def library_events(reports: Reports) -> tuple[str, ...]:
    """The library calls of all ranks, each once."""
    every = [report.observed.library_events for report in reports.values() if report.observed is not None]
    return tuple(sorted({name for events in every for name in events}))


def communication(reports: Reports) -> Communication:
    """`library` if any rank called a collective, or if one of the candidate's own libraries imports one; `custom` if any rank
    accessed a peer's memory; otherwise `none`."""
    observed = [report.observed for report in reports.values() if report.observed is not None]
    if any(seen.collectives or seen.library_events for seen in observed):
        return Communication.LIBRARY
    if any(seen.symmetric or seen.peer_copies for seen in observed):
        return Communication.CUSTOM
    return Communication.NONE
