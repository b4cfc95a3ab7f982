"""Archives of records for tests: a good one of an H200 that all ranks share, and what makes it bad."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from verdict_examples import example

from pkb.analysis.machine_archive import write_archive
from pkb.analysis.machine_records import (
    MANIFEST,
    SCHEMA,
    DoctorFact,
    KitStep,
    Manifest,
    Member,
    OutcomeOfTest,
    ProbeFigure,
    ReferenceTime,
    to_line,
)
from pkb.types.document_versions import read_evaluation
from pkb.types.protocol.codec import encode
from pkb.types.timing import Timing
from pkb.types.verdict import Communication, Decision, Evaluation, Verdict

RECORDS = Path(__file__).parents[2] / "docs" / "records" / "kernels.jsonl"
HARDWARE = "NVIDIA H200"
MANIFEST_LIKE = Manifest(
    schema=SCHEMA, machine="some-h200", created_at="2026-11-16T02:00:00+00:00", platform="virtual", shared_gpu=True,
    hardware=HARDWARE, ranks=4, driver="580.159.04", versions={"torch": "2.11.0+cu130", "python": "3.12.3"},
    judge_sha256="ab" * 32, commit="", steps=(KitStep("probe", "done", 12.0), KitStep("kernels", "stopped", 60.0, "limit")),
    members=(),
)  # fmt: skip


def case(row: dict[str, Any]) -> tuple[int, str, int]:
    return row["problem"]["id"], row["size"], row["ranks"]


def kernel(**changes: Any) -> Evaluation:
    """A timed verdict of an H200, as the judge wrote it."""
    rows = map(json.loads, RECORDS.read_text().splitlines())
    row = next(row for row in rows if case(row) == (2, "real", 8) and row["timing"])
    return replace(read_evaluation(row), **changes)


def control(low: float = 0.98, high: float = 1 / 0.98) -> Evaluation:
    """The reference against itself; the middle of the interval is what its samples say."""
    found = kernel(communication=Communication.LIBRARY)
    assert found.timing is not None
    speedup = math.sqrt(low * high)
    timing = replace(scaled(found.timing, speedup), speedup_low=low, speedup_high=high, decision=Decision.SAME)
    return replace(found, timing=timing)


def scaled(timing: Timing, speedup: float) -> Timing:
    """With a candidate whose every call is faster than the reference's by this much, as the judge would write it."""
    samples = tuple(tuple(us / speedup for us in calls) for calls in timing.reference_samples_us)
    return replace(
        timing, candidate_us=timing.reference_us / speedup, candidate_samples_us=samples, speedup=speedup,
        speedup_low=speedup, speedup_high=speedup,
    )  # fmt: skip


REFERENCE = ReferenceTime(2, 1, "real", 8, "bf16", 3113.0, 3000.0, 3300.0, 1 << 31)
PROBE = ProbeFigure("matrix", "bf16", "together", 4, 8192, None, 5966.0, 5900.0, 6000.0, 1.843e14)


def good() -> dict[str, Sequence[object]]:
    wrong = example(Verdict.WRONG, platform="virtual", hardware=HARDWARE, ranks=4)
    return {
        "doctor.jsonl": [DoctorFact("GPU", "GPU 0", True, HARDWARE)],
        "probe.jsonl": [PROBE],
        "references.jsonl": [REFERENCE],
        "tests.jsonl": [OutcomeOfTest("adversaries", "test_verdict[gpu/kernel_traps]", "passed")],
        "control.jsonl": [control()],
        "kernels.jsonl": [kernel()],
        "frontier.jsonl": [kernel(), wrong],
    }


def bodies(records: Mapping[str, Sequence[object]]) -> dict[str, bytes]:
    return {name: b"".join(map(to_line, lines)) for name, lines in records.items()}


def listed(members: Mapping[str, bytes], manifest: Manifest = MANIFEST_LIKE) -> dict[str, bytes]:
    """With a manifest that lists them."""
    entries = tuple(Member(name, hashlib.sha256(body).hexdigest(), len(body)) for name, body in sorted(members.items()))
    return {**members, MANIFEST: encode(replace(manifest, members=entries))}


def archive(path: Path, *, manifest: Manifest = MANIFEST_LIKE, **records: Sequence[object]) -> Path:
    """A good archive but for these members: `archive(path, control=[])` leaves that one empty."""
    changed = {f"{name.replace('_', '-')}.jsonl": lines for name, lines in records.items()}
    write_archive(path, listed(bodies({**good(), **changed}), manifest))
    return path
