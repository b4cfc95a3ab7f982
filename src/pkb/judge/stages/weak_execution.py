"""Weak execution: calls of a candidate with CUDA in which synchronisation that is missing shows in the numbers.

While a kernel runs, its rank works on a copy of symmetric memory that is brought up to date only where the memory model says
so (kit/emulated/runtime/weak.cpp, docs/races.md). Results are compared as always. Wrong ones are told beside a race that is
proven, and accuse nobody by themselves: a proof names two lines, and this only says that something went wrong.
"""

import os
import time
from dataclasses import replace

from pkb.judge.crew.failure import CrewFailure
from pkb.judge.stages.race_proof import CALLS, ENOUGH_S, BadEnd, Proved, Recorder, Trace, trace_files
from pkb.types.difference import rank_words
from pkb.types.race import RaceProof, WeakExecution

EXTRA_S = 20.0
"""For a batch: a rank that waits for what never becomes visible would take all of it."""
LOG_BYTES = 64 << 10
"""The log is not read. It is full at once, which costs nothing."""
BROKEN_AT = 28
"""In a log's head: whether the order of strong accesses is not exact, or worse (kit/emulated/runtime/events.h)."""


def run_weakly(recorder: Recorder, proof: RaceProof, batches: int) -> Proved:
    """Returns the proof with the result of weak execution added. Like the proof, it never raises because of what ranks do."""
    done, began = 0, time.monotonic()
    for seed in range(proof.seeds[0], proof.seeds[0] + batches):
        if done and time.monotonic() - began > ENOUGH_S:
            break
        recorder.progress(f"races: weak execution {seed - proof.seeds[0] + 1} of {batches}")
        with trace_files(seed, proof.ranks, log_bytes=LOG_BYTES) as trace:
            try:
                slots, said = recorder.record(trace, weak=True, extra_s=EXTRA_S)
                why_not = said.why_not
                outcome = recorder.exchange.check(slots, words="weak execution") if not why_not else None
                recorder.exchange.drop()
            except CrewFailure as failure:
                found = WeakExecution(done, why_not=f"it did not end well: {failure}"[:300])
                return Proved(replace(proof, weak=found), BadEnd(failure, recorder.exchange.calls))
            why_not = why_not or ("a log is broken" if _is_broken(trace) else "")
        if why_not or outcome is None or outcome.rejected:
            found = WeakExecution(done, why_not=(why_not or f"no result: {outcome and outcome.rejected}")[:300])
            return Proved(replace(proof, weak=found))
        if outcome.mismatch is not None:
            wrong = outcome.mismatch
            words = f"{wrong.output} of {rank_words(wrong.ranks)} was wrong ({wrong.pattern or wrong.what})"
            return Proved(replace(proof, weak=WeakExecution(done + CALLS, wrong=words[:300])))
        done += CALLS
    return Proved(replace(proof, weak=WeakExecution(done)))


def _is_broken(trace: Trace) -> bool:
    return any(any(os.pread(log, 4, BROKEN_AT)) for log in trace.logs)
