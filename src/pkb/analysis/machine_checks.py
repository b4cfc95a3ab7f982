"""Is an archive of records worth merging? What physics and its own control measurement say against it."""

import math
import statistics
from collections.abc import Iterator

from pkb.analysis.machine_records import MachineRecords, ProbeFigure, ReferenceTime
from pkb.problems.base import Problem
from pkb.problems.registry import Registry
from pkb.roofline.bounds import cost_of
from pkb.roofline.floor import floor_us
from pkb.roofline.hardware import built_in_for
from pkb.types.errors import UserError
from pkb.types.timing import Timing
from pkb.types.verdict import Evaluation, Verdict

VERDICTS = ("control.jsonl", "kernels.jsonl", "kernels-nvls-off.jsonl", "frontier.jsonl")
RATE_SLACK = 1.25
"""Over the datasheet: a probe's buffers are a few times as large as L2, so a little of them may never reach memory."""
SAMPLE_SLACK = 1e-6
"""Of a speedup and of both times against the samples that they are computed from."""


def objections(records: MachineRecords, registry: Registry) -> list[str]:
    """Why these records are refused; empty if nothing speaks against them."""
    return [*_of_another_machine(records), *_impossible(records, registry), *_control(records)]


def latest_controls(records: MachineRecords) -> list[Evaluation]:
    """The kit repeats a control that is off: of each case the last one counts."""
    return list({(one.problem.id, one.size, one.ranks): one for one in records.verdicts("control.jsonl")}.values())


def _control(records: MachineRecords) -> Iterator[str]:
    """The reference against itself: a machine on which it is faster or slower than itself shows no gain of others."""
    timed = any(one.timing for member in VERDICTS[1:] for one in records.verdicts(member))
    controls = latest_controls(records)
    if not controls and (timed or records.of("references.jsonl", ReferenceTime)):
        yield "it holds times and no A/A control (the reference against itself)"
    for one in controls:
        case = f"A/A control at {one.size} with {one.ranks} ranks"
        if one.verdict is not Verdict.CORRECT or one.timing is None:
            yield f"{case}: {one.verdict}, not timed"
        elif not one.timing.speedup_low <= 1 <= one.timing.speedup_high:
            interval = f"{one.timing.speedup_low:.3f} to {one.timing.speedup_high:.3f}"
            yield f"{case}: the reference against itself is {one.timing.speedup:.3f} ({interval}), and 1 lies outside"


def _of_another_machine(records: MachineRecords) -> Iterator[str]:
    manifest = records.manifest
    for member in VERDICTS:
        for one in records.verdicts(member):
            if (one.platform, one.hardware) != (manifest.platform, manifest.hardware):
                yield f"{member}: a verdict taken on {one.platform}, {one.hardware[:60]}: not the manifest's machine"
                return


def _impossible(records: MachineRecords, registry: Registry) -> Iterator[str]:
    for member in VERDICTS:
        for one in records.verdicts(member):
            case = f"{member}: problem {one.problem.id}, {one.size}, {one.ranks} ranks"
            problem, why = _case(registry, one.problem.id, one.problem.version, one.size, one.ranks, one.dtype)
            if why:
                yield f"{case}: {why}"
            elif problem and one.timing is not None and one.verdict is Verdict.CORRECT:
                timing = one.timing
                for whose, us in (("candidate", timing.candidate_us), ("reference", timing.reference_us)):
                    yield from _below_floor(records, problem, one.size, one.ranks, one.dtype, us, f"{case}, {whose}")
                if not _consistent(timing):
                    yield f"{case}: speedup, interval, times and samples contradict each other"
    for row in records.of("references.jsonl", ReferenceTime):
        case = f"references.jsonl: problem {row.problem}, {row.size}, {row.ranks} ranks"
        problem, why = _case(registry, row.problem, row.version, row.size, row.ranks, row.dtype)
        if why:
            yield f"{case}: {why}"
        elif problem and row.time_us is not None:
            yield from _below_floor(records, problem, row.size, row.ranks, row.dtype, row.time_us, case)
    yield from _impossible_rates(records)


def _consistent(timing: Timing) -> bool:
    """Do the speedup and both times follow from the samples, and does the interval hold the speedup?

    The width of the interval is not computed again: it is a resampling whose error depends on when the judge stopped.
    """
    if not 0 < timing.speedup_low <= timing.speedup <= timing.speedup_high:
        return False
    found = from_samples(timing)
    if found is None:
        return False
    speedup, *times = found
    # Judges before paired calls quoted the ratio of the two times. They had no window; nor has a present record where nothing
    # is left of the candidate's time in it, so that the ratio is one of two answers there.
    speedups = [speedup] if timing.window_speedup_low is not None else [speedup, times[0] / times[1]]
    return any(_near(timing.speedup, one) for one in speedups) and all(
        map(_near, (timing.reference_us, timing.candidate_us), times)
    )


def _near(said: float, computed: float) -> bool:
    return math.isclose(said, computed, rel_tol=SAMPLE_SLACK)


def from_samples(timing: Timing) -> tuple[float, float, float] | None:
    """Speedup, reference's and candidate's time as docs/measuring.md defines them; None where the samples are no pairs.

    The judge has the same formulas (`pkb.judge.timing.statistics`). Analysis imports no judge, so a test compares the two.
    """
    sides = timing.reference_samples_us, timing.candidate_samples_us
    kinds = timing.sample_kinds or tuple(("",) * len(calls) for calls in sides[0])
    shapes = {tuple(map(len, rounds)) for rounds in (*sides, kinds)}
    weights = {kind: one.weight for kind, one in timing.speedup_by_kind.items()} if timing.sample_kinds else {"": 1.0}
    if len(shapes) != 1 or any(weight <= 0 for weight in weights.values()):
        return None
    pairs: dict[str, list[tuple[float, float]]] = {kind: [] for kind in weights}
    for theirs, ours, kind in zip(
        *([one for calls in rounds for one in calls] for rounds in (*sides, kinds)), strict=True
    ):
        if kind not in pairs or theirs <= 0 or ours <= 0:
            return None
        pairs[kind].append((theirs, ours))
    if not pairs or not all(pairs.values()):
        return None
    total, log_ratio, reference_us, candidate_us = sum(weights.values()), 0.0, 0.0, 0.0
    for kind, calls in pairs.items():
        share = weights[kind] / total
        log_ratio += share * statistics.median(math.log(theirs) - math.log(ours) for theirs, ours in calls)
        reference_us += share * statistics.median(theirs for theirs, _ in calls)
        candidate_us += share * statistics.median(ours for _, ours in calls)
    return math.exp(max(-50.0, min(50.0, log_ratio))), reference_us, candidate_us


def present(registry: Registry, number: int, version: int) -> Problem | None:
    """The problem that a record is of, if it is still the same: tables show no others, and floors are known of no others."""
    try:
        problem = registry.get(number)
    except UserError:
        return None
    return problem if problem.version == version else None


def _case(
    registry: Registry, number: int, version: int, size: str, ranks: int, dtype: str
) -> tuple[Problem | None, str]:
    problem = present(registry, number, version)
    return problem, (problem.why_not(size, ranks, dtype) or "") if problem else ""


def _below_floor(
    records: MachineRecords, problem: Problem, size: str, ranks: int, dtype: str, us: float, case: str
) -> Iterator[str]:
    floor = floor_us(
        cost_of(problem, size=size, world_size=ranks, dtype=dtype), hardware=records.manifest.hardware, dtype=dtype,
        world_size=ranks, shared_gpu=records.manifest.shared_gpu,
    )  # fmt: skip
    if us <= 0 or (floor is not None and us < floor):
        yield f"{case}: {us:.2f} us is below the physical floor of {floor or 0:.2f} us"


def _impossible_rates(records: MachineRecords) -> Iterator[str]:
    machine = built_in_for(records.manifest.hardware)
    if machine is None:
        return
    peak = machine.ideal
    for row in records.of("probe.jsonl", ProbeFigure):
        dtype = "fp32" if row.name == "tf32" else row.name
        limits = {
            "matrix": peak.flops.get(dtype),
            "memory": None if row.name.startswith("l2") else peak.hbm_bytes_per_s,
            # On a shared GPU its memory and caches play the link.
            "link": None if records.manifest.shared_gpu else peak.link_bytes_per_s,
        }
        limit = limits.get(row.kind)
        rate = (row.rate or 0.0) * (row.ranks if records.manifest.shared_gpu else 1)
        if limit is not None and rate > RATE_SLACK * limit:
            yield f"probe.jsonl: {row.kind} {row.name[:40]}: {rate:.3g} per second, a {machine.gpu} has {limit:.3g}"
