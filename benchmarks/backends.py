"""Judges our solutions in every backend and makes the tables of docs/backends.md.

    python benchmarks/backends.py --platform virtual --ranks 4,8 --size paper --seconds 900 --out docs/records/backends.jsonl
    python benchmarks/backends.py --out docs/records/backends.jsonl --page docs/backends.md --seconds 0

A verdict is written as soon as it is there, and a case whose file has not changed since, nor the kit that CUDA solutions
are built with, is not judged again, so a run may be stopped by its budget and gone on with. Builds start from an empty cache,
so that their times are those of compilers, several at a time. Whatever stands below the mark in the page is replaced.
"""

import argparse
import ast
import itertools
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kernel_records import Row, Tries, add_row, kit_of, read_rows, seconds_of

from pkb.candidates.source import read
from pkb.judge.crew.sides import build_environment
from pkb.judge.session import evaluate
from pkb.judge.stages.build import prebuild
from pkb.kit.fingerprint import fingerprint
from pkb.platforms.registry import create, resolve
from pkb.problems import get
from pkb.types.case import Case
from pkb.types.errors import UserError
from pkb.types.job import Job
from pkb.types.plan import Plan

ROOT = Path(__file__).resolve().parents[1]
MARK = "<!-- below: made by benchmarks/backends.py -->"
SIDE_BY_SIDE = 1
KIT = "cuda"
WITH_KIT = (KIT, "nccl", "nvshmem")
"""Whose solutions the kit compiles, with its headers."""
SHORT = Plan("standard", trials=2, odd_trials=0, second_world_trials=0, race_calls=4, race_repeats=1, timing_rounds=6,
             calls_per_round=20, warmup_calls=10, verify_share=0.1)  # fmt: skip
"""For times of solutions that have been judged thoroughly before."""
AGAIN = ("unsupported", "harness_error")
"""Verdicts that say something about a machine: another may have what was missing."""


class Backend(NamedTuple):
    title: str
    cannot: str


BACKENDS = {
    KIT: Backend("CUDA C++ with the kit", "reach beyond one NVLink domain; library collectives inside a kernel"),
    "triton": Backend("Triton", "TMA to peers, multimem but by inline assembly, threads that do different things"),
    "nccl": Backend("NCCL's device API", "run with an NCCL older than 2.32; build without nvcc"),
    "nvshmem": Backend(
        "NVSHMEM, CUDA C++", "build without nvcc; share torch's symmetric buffers; subgroups without teams"
    ),
    "nvshmem_triton": Backend("NVSHMEM, Triton", "run on platform cpu; more than torch's helpers wrap"),
    "cute": Backend("CuTe DSL", "run or be built without a GPU; order across GPUs but by inline PTX"),
}
"""By the end of a file's name; what each cannot do, for the table that compares them."""


class Candidate(NamedTuple):
    path: Path
    problem: int
    backend: str


def candidates(chosen: list[str], problems: list[int]) -> list[Candidate]:
    """Solutions in the backends, with the kit's solution of the same problems; Triton's are the examples of prompts."""
    files = [*(ROOT / "solutions").glob("[0-9]*.py")]
    found = [Candidate(path, int(path.name[:2]), backend_of(path.stem)) for path in files]
    examples = (ROOT / "src" / "pkb" / "generate" / "examples" / "triton").glob("[0-9]*.py")
    found += [Candidate(path, int(path.name[:2]), "triton") for path in examples]
    wanted = [each for each in found if each.backend in chosen and (not problems or each.problem in problems)]
    others = {each.problem for each in wanted if each.backend not in (KIT, "triton")} | {SIDE_BY_SIDE}
    kept = [each for each in wanted if each.problem in others]
    return sorted(kept, key=lambda each: (each.problem != SIDE_BY_SIDE, each.problem, [*BACKENDS].index(each.backend)))


def backend_of(stem: str) -> str:
    return next((name for name in sorted(BACKENDS, key=len, reverse=True) if stem.endswith(f"_{name}")), "")


def lines_of_code(text: str) -> int:
    """Without blank lines, comments and docstrings; lines of CUDA inside strings count."""
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        holds = isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None
        if holds:
            said = node.body[0]  # type: ignore[attr-defined]
            skipped |= set(range(said.lineno, said.end_lineno + 1))
    lines = [line.strip() for number, line in enumerate(text.splitlines(), start=1) if number not in skipped]
    return sum(bool(line) and not line.startswith(("# ", "//")) for line in lines)


def judge(asked: argparse.Namespace) -> None:
    """One after another, until the budget is spent. What is built is built before, several at a time."""
    began, platform = time.monotonic(), resolve(asked.platform)
    known = read_rows(asked.out)
    done, before = {key_of(row) for row in known if row["verdict"] not in AGAIN}, latest(known)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    chosen = candidates(asked.backends, asked.problems)
    waiting, tries = [], Tries()
    for ranks, size, each in itertools.product(asked.ranks, asked.sizes, chosen):
        problem = get(each.problem)
        key = (platform, each.problem, each.backend, present_version(each), ranks, size)
        if key not in done and not problem.why_not(size, ranks, problem.default_dtype):
            waiting.append((each, Case(problem.stem, platform, ranks, size, problem.default_dtype, asked.plan)))
    with tempfile.TemporaryDirectory(prefix="pkb-backends-") as cache:
        os.environ["PKB_CACHE"] = cache
        seconds = built([*dict.fromkeys(each for each, _ in waiting)], platform, workers=asked.builders)
        for each, case in waiting:
            name = f"{each.path.name}, {case.ranks} ranks, {case.size}"
            last = before.get((each.problem, each.backend, case.ranks, case.size))
            if time.monotonic() - began + (seconds_of([last] if last else []) or 0.0) > asked.seconds:
                print(f"{name}: left, it would not end within {asked.seconds:.0f} s", flush=True)
                continue
            custom = replace(SHORT, name=asked.plan) if asked.short else None
            job = Job(each.path, case, timing=not asked.no_timing, profile=False, custom_plan=custom)
            try:
                found = evaluate(replace(job, call_limit_s=asked.call_limit))
            except UserError as error:
                print(f"{name}: not judged: {error.message}", flush=True)
                continue
            except Exception:  # the next run would fail there again
                print(f"{name}: no verdict: {traceback.format_exc()[-1500:]}", flush=True)
                tries.gave(None)
                continue
            row = found.to_dict() | {"benchmark": each.backend, "lines": lines_of_code(each.path.read_text())}
            row |= {"built_s": seconds[each], "short": asked.short}
            if row["timing"]:  # samples are many, and of no use here
                row["timing"] |= {"reference_samples_us": (), "candidate_samples_us": ()}
            add_row(asked.out, row)
            print(f"{time.monotonic() - began:.0f} s: {name}: {found.verdict}: {found.detail}", flush=True)
            tries.gave(found.verdict)


def built(chosen: list[Candidate], platform: str, *, workers: int) -> dict[Candidate, float]:
    """Into the cache; how many seconds each took, from nothing."""
    facts = create(platform).facts()

    def build(each: Candidate) -> float:
        report = prebuild(each.path, limit_s=300, environment=build_environment(facts))
        report.discard()
        return sum(item.seconds for item in report.built if item.line)  # not our own runtime for platform cpu

    with ThreadPoolExecutor(workers) as pool:
        return dict(zip(chosen, pool.map(build, chosen), strict=True))


def key_of(row: Row) -> tuple[Any, ...]:
    return row["platform"], row["problem"]["id"], row["benchmark"], version_of(row), row["ranks"], row["size"]


def version_of(row: Row) -> str:
    return row["candidate"]["sha256"] + (f" {kit_of(row)}" if row["benchmark"] in WITH_KIT else "")


def present_version(each: Candidate) -> str:
    return read(each.path).sha256 + (f" {fingerprint()}" if each.backend in WITH_KIT else "")


def latest(rows: list[Row]) -> dict[tuple[Any, ...], Row]:
    """Of each problem, backend, number of ranks and size the last verdict, whatever version of the file it is of; one that only
    says what a machine lacks counts where there is no other."""
    ordered = [row for row in rows if row["verdict"] in AGAIN] + [row for row in rows if row["verdict"] not in AGAIN]
    return {(row["problem"]["id"], row["benchmark"], row["ranks"], row["size"]): row for row in ordered}


def page(rows: list[Row]) -> str:
    lines: list[str] = []
    for platform in sorted({row["platform"] for row in rows}, reverse=True):
        here = latest([row for row in rows if row["platform"] == platform])
        lines += [f"## On `{platform}`: {next(iter(here.values()))['hardware']}", ""]
        short = sum(row["short"] for row in here.values())
        words = [
            f"{len(here)} cases; {short} by a short plan: {SHORT.trials} calls checked, {SHORT.race_calls} in each race",
            f"scenario, {SHORT.timing_rounds} rounds of {SHORT.calls_per_round} calls timed.",
            "Builds ran several at a time.",
            f"Taken on {' and '.join(sorted({row['started_at'][:10] for row in here.values()}))}; {older(here.values())}.",
        ]
        lines += [" ".join(words), ""]
        lines += [f"### The same problem in every backend: {get(SIDE_BY_SIDE).stem}", "", *side_by_side(here), ""]
        lines += ["### By problem", "", *by_problem(here), ""]
    return "\n".join(lines)


def older(rows: Collection[Row]) -> str:
    """How many verdicts are of an earlier text."""
    present = {present_version(each) for each in candidates([*BACKENDS], [])}
    return f"{sum(version_of(row) not in present for row in rows)} of an earlier text of the solution or of the kit"


def side_by_side(rows: dict[tuple[Any, ...], Row]) -> list[str]:
    cases = sorted({(ranks, size) for problem, _, ranks, size in rows if problem == SIDE_BY_SIDE})
    heads = [f"us, {ranks} ranks, {size}" for ranks, size in cases]
    yielded = ["| backend | lines of code | build, s | first call, s | " + " | ".join(heads) + " | what it cannot do |"]
    yielded.append("|---" * (5 + len(cases)) + "|")
    for name, backend in BACKENDS.items():
        found = [rows.get((SIDE_BY_SIDE, name, ranks, size)) for ranks, size in cases]
        known = [row for row in found if row]
        if known:
            seconds = max(row["built_s"] for row in known)
            calls = [row["timing"]["first_call_us"] for row in known if row["timing"]]
            first = f"{max(filter(None, calls), default=0) / 1e6:.2f}" if calls else "-"
            built = f"{seconds:.1f}" if seconds else "in the ranks"
            cells = [backend.title, str(known[-1]["lines"]), built, first]
            yielded.append("| " + " | ".join([*cells, *(_time(row) for row in found), backend.cannot]) + " |")
    return yielded


def by_problem(rows: dict[tuple[Any, ...], Row]) -> Iterator[str]:
    yield "| problem | ranks | size | backend | verdict | us | the kit's us | speedup against the baseline (95 % interval) |"
    yield "|---|---|---|---|---|---|---|---|"
    order = [*BACKENDS]
    for (problem, name, ranks, size), row in sorted(
        rows.items(), key=lambda item: (item[0][0], item[0][2], item[0][3], order.index(item[0][1]))
    ):
        if name in (KIT, "triton"):
            continue
        kits, t = rows.get((problem, KIT, ranks, size)), row["timing"]
        speedup = f"{t['speedup']:.2f} ({t['speedup_low']:.2f} to {t['speedup_high']:.2f})" if t else "-"
        kit = _time(kits) if kits else "none"
        cells = [get(problem).stem, str(ranks), size, BACKENDS[name].title, _verdict(row), _time(row), kit, speedup]
        yield "| " + " | ".join(cells) + " |"


def _verdict(row: Row) -> str:
    words = str(row["verdict"])
    return words if words == "correct" else f"{words}: {row['detail'][:120]}".replace("|", "/").replace("\n", " ")


def _time(row: Row | None) -> str:
    if row is None:
        return "-"
    if not row["timing"]:
        return f"{row['verdict']}, not timed" if row["verdict"] == "correct" else str(row["verdict"])
    us = row["timing"]["candidate_us"]
    return f"{us:.0f}" if us >= 100 else f"{us:.1f}"


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--platform", default="auto")
    options.add_argument("--ranks", type=numbers, default=[4, 8])
    options.add_argument("--sizes", type=lambda text: text.split(","), default=["paper"])
    options.add_argument("--plan", default="standard")
    options.add_argument("--problems", type=numbers, default=[])
    options.add_argument("--backends", type=lambda text: text.split(","), default=[*BACKENDS])
    options.add_argument("--call-limit", type=float, default=20.0)
    options.add_argument("--no-timing", action="store_true")
    options.add_argument("--short", action="store_true", help="few trials and rounds: for what has been judged before")
    options.add_argument("--builders", type=int, default=max(1, len(os.sched_getaffinity(0)) // 2))
    options.add_argument(
        "--seconds", type=float, default=600.0, help="begin no evaluation that ends later, as far as is known"
    )
    options.add_argument("--out", type=Path, required=True, help="verdicts, as JSON lines")
    options.add_argument("--page", type=Path)
    asked = options.parse_args()
    if asked.seconds > 0:
        judge(asked)
    rows = read_rows(asked.out)
    if asked.page:
        text = asked.page.read_text()
        if MARK not in text:
            print(f"{asked.page} has no line {MARK}", file=sys.stderr)
            return 2
        asked.page.write_text(text.partition(MARK)[0] + MARK + "\n\n" + (page(rows) if rows else "No verdict yet.\n"))
    else:
        print(page(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
