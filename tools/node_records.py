"""From the files that the steps of tools/validate_node.py leave behind to the typed records of an archive."""

import hashlib
import importlib.metadata
import json
import platform as host
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pkb.analysis import machine_records as records
from pkb.analysis.machine_archive import write_archive
from pkb.platforms.base import PlatformFacts
from pkb.platforms.cuda import gpus
from pkb.platforms.registry import traits
from pkb.problems import get
from pkb.types.document_versions import read_evaluation
from pkb.types.protocol.codec import Malformed, encode

ROOT = Path(__file__).resolve().parents[1]
STATE = "steps.json"
TEST_LINE = re.compile(r"^(\S+\.py::.+?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")
OUTCOMES = {"PASSED": "passed", "XFAIL": "passed", "SKIPPED": "skipped"}
Row = dict[str, Any]


@dataclass(frozen=True)
class StepRecord:
    name: str
    outcome: str
    seconds: float
    detail: str = ""


def read_state(work: Path) -> dict[str, StepRecord]:
    path = work / STATE
    return {name: StepRecord(**row) for name, row in json.loads(path.read_text()).items()} if path.exists() else {}


def write_state(work: Path, state: dict[str, StepRecord]) -> None:
    partial = work / f".{STATE}"
    partial.write_text(json.dumps({name: asdict(row) for name, row in state.items()}, indent=1))
    partial.replace(work / STATE)


def summary(work: Path) -> dict[str, str]:
    return {name: f"{row.outcome}, {row.seconds:.0f} s: {row.detail[:120]}" for name, row in read_state(work).items()}


def cut_partial_lines(work: Path) -> None:
    """A program that was stopped may have been writing one."""
    for path in work.glob("*.jsonl"):
        body = path.read_bytes()
        if body and not body.endswith(b"\n"):
            path.write_bytes(body[: body.rfind(b"\n") + 1])


def machine_name(facts: PlatformFacts) -> str:
    return re.sub(r"[^a-z0-9]+", "-", f"{facts.hardware} {facts.name}".lower()).strip("-")[:60].strip("-")


def controls_off(work: Path) -> bool:
    """Whether the last control of a case does not hold 1, or there is none."""
    last = {(row["size"], row["ranks"]): row["timing"] for row in control_rows(work)}
    return not last or any(not one or not one["speedup_low"] <= 1 <= one["speedup_high"] for one in last.values())


def control_rows(work: Path) -> list[Row]:
    return [row for attempt in (1, 2, 3) for row in rows(work / f"control-{attempt}.jsonl")]


def rows(path: Path) -> list[Row]:
    """A line that cannot be read costs no other: what is packed took an hour of several GPUs."""
    found = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            print(f"{path}: a line that is no record, and is left out: {line[:80]!r}", file=sys.stderr)
    return found


# -- packing -----------------------------------------------------------------------------------------------------------


def pack(archive: Path, work: Path, *, facts: PlatformFacts, ranks: int, machine: str, judge: str) -> None:
    """The archive of whatever is there. It is read back by the rules of a merge: what those refuse is left out, and said."""
    cut_partial_lines(work)
    sources: dict[str, Callable[[], Iterator[object]]] = {
        "doctor.jsonl": lambda: doctor_facts(work),
        "probe.jsonl": lambda: probe_rows(work),
        "references.jsonl": lambda: reference_times(work),
        "tests.jsonl": lambda: test_outcomes(work),
        "control.jsonl": lambda: map(read_evaluation, control_rows(work)),
        **{
            f"{name}.jsonl": lambda name=name: map(read_evaluation, rows(work / f"{name}.jsonl"))  # type: ignore[misc]
            for name in ("kernels", "kernels-nvls-off", "frontier")
        },
    }
    members = {name: body for name, make in sources.items() if (body := b"".join(accepted(name, make())))}
    versions = {"python": host.python_version()} | {
        name: importlib.metadata.version(name) for name in ("torch", "triton") if installed(name)
    }
    for row in control_rows(work)[:1]:
        versions |= {name: row["environment"][name] for name in ("cuda", "nccl") if name in row["environment"]}
    found = gpus()
    manifest = records.Manifest(
        schema=records.SCHEMA, machine=machine, created_at=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        platform=facts.name, shared_gpu=traits(facts.name).shares_gpu, hardware=plain(facts.hardware), ranks=ranks,
        driver=plain(found[0].driver) if found else "", versions={k: plain(v) for k, v in versions.items()},
        judge_sha256=judge, commit=commit(),
        steps=tuple(records.KitStep(row.name, row.outcome, round(row.seconds, 1), row.detail[:300])  # type: ignore[arg-type]
                    for row in read_state(work).values()),
        members=tuple(records.Member(name, hashlib.sha256(body).hexdigest(), len(body))
                      for name, body in sorted(members.items())),
    )  # fmt: skip
    members[records.MANIFEST] = encode(manifest)
    records.parse(members)
    archive.parent.mkdir(parents=True, exist_ok=True)
    write_archive(archive, members)


def accepted(name: str, found: Iterator[object]) -> Iterator[bytes]:
    home = json.dumps(str(Path.home()))[1:-1].encode()
    for record in found:
        line = records.to_line(record)
        if len(home) > 1:  # a path there names a person
            line = line.replace(home, b"~")
        try:
            records.read_line(name, line.rstrip(b"\n"))
        except Malformed as error:
            print(f"left out of the archive: {name}: {error}", file=sys.stderr)
        else:
            yield line


def doctors(work: Path) -> list[Row]:
    try:
        document: Row = json.loads((work / "doctor.json").read_text())
    except (OSError, ValueError):  # not run, or stopped
        return []
    return list(document.get("facts", []))


def lacking(work: Path) -> list[str]:
    """What the doctor says that is not as it should be, of what several GPUs need."""
    return [
        f"{fact['section']}: {fact['name']}: {fact['found']}" + (f"; {fact['to_do']}" if fact["to_do"] else "")
        for fact in doctors(work)
        if fact["section"] in ("machine", "node", "links", "trial") and not fact["ok"]
    ]


def doctor_facts(work: Path) -> Iterator[object]:
    for fact in doctors(work):
        yield records.DoctorFact(str(fact["section"]), str(fact["name"]), bool(fact["ok"]), str(fact["found"])[:1000])


def probe_rows(work: Path) -> Iterator[object]:
    path = work / "probe.json"
    for row in json.loads(path.read_text())["rows"] if path.exists() else []:
        yield records.ProbeFigure(**row)


def reference_times(work: Path) -> Iterator[object]:
    for row in rows(work / "references.jsonl"):
        low, high = row["spread_us"] or (None, None)
        yield records.ReferenceTime(
            row["id"], get(row["id"]).version, row["size"], row["ranks"], row["dtype"], row["time_us"], low, high,
            row["all_ranks_peak_bytes"], row["error"][:1000],
        )  # fmt: skip


def test_outcomes(work: Path) -> Iterator[object]:
    """From what pytest said line by line: a run that was stopped has said as much as it did. The last word on a test counts."""
    for suite in ("tests", "adversaries"):
        path = work / f"{suite}.log"
        found = {}
        for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
            if said := TEST_LINE.match(line):
                found[said[1][:400]] = OUTCOMES.get(said[2], "failed")
        for name, outcome in found.items():
            yield records.OutcomeOfTest(suite, name, outcome)  # type: ignore[arg-type]


def installed(name: str) -> bool:
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def plain(text: str) -> str:
    """What a manifest may hold."""
    return re.sub(r"[^\w .,:;+()/-]", "", text, flags=re.ASCII)[:200]


def commit() -> str:
    """With `+` where a file has been changed since; empty where there is no repository to ask."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    changed = git("status", "--porcelain", "--untracked-files=no")
    return f"{git('rev-parse', 'HEAD')}{'+' if changed else ''}"
