"""The steps of `owed.py`, the most important first: which records each page of docs still lacks."""

import hashlib
import itertools
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import backends
import frontier
import kernel_records
import noise
import references
import showcase
import verdict_table
from kernel_records import Case, Row, add_row, expected_s, read_rows, seconds_of
from kernel_report import SLOWER, TIMED, other_shapes

from pkb.kit.fingerprint import fingerprint
from pkb.platforms.registry import create
from pkb.problems import get
from pkb.problems.registry import Registry, default_registry, load_folder
from pkb.problems.suite import suite
from pkb.types.case import AUTO
from pkb.types.case import Case as CaseToJudge
from pkb.types.plan import plan

ROOT = Path(__file__).resolve().parents[1]
BEFORE = "before-*.tar"
"""Archives of commits whose kernels are compared with the present ones, one for each commit."""
LEFT = "LEFT"
"""In a command: the seconds in which it may begin something, or end it where it knows what that takes."""
STARTS, ROUNDS_S = 3, 45
"""Of the reference against itself, at each size, and how long each is measured."""
GPU_TESTS = {"*_against*": "starts", "*_kit*": "kit", "*_graph*": "kit", "*_window*": "kit"}
"""Files with steps of their own: of what times rest on, before any are taken, and of what our kernels are built on."""
ADVERSARIES_AT_A_TIME = 20
JUDGED_ANYWAY = "test_solutions_gpu.py"
"""Some 150 evaluations, more than any one command may take, and all of which `judged` makes with a plan that looks further."""
TIMES = 5
TEN = [
    *(f"solutions/{name}_cuda.py" for name in ("01_allreduce", "02_allgather", "08_alltoall", "13_gemm_allreduce")),
    *(f"solutions/{name}_cuda.py" for name in ("45_reducescatter_fused_rmsnorm", "54_ring_attention")),
    *(f"tests/adversaries/gpu/{name}.py" for name in ("library_nccl", "honest_all_reduce_cuda_timed")),
    *(f"tests/adversaries/gpu/{name}.py" for name in ("last_step_behind_the_end_mark", "kernel_beside_the_reference")),
]
"""Kernels and adversaries that are judged again and again, and how often."""


@dataclass(frozen=True)
class Place:
    platform: str
    out: Path
    records: Path = ROOT / "docs" / "records"
    ranks: tuple[int, ...] = (4, 8, 2)
    sizes: tuple[str, ...] = ("tiny", "odd", "paper", "real")
    only: frozenset[int] = frozenset()
    """Kernels by their problems; empty: all."""
    lanes: int = 1
    trees: tuple[Path, ...] = ()
    """Of kernels that others have published."""

    def rows(self, name: str) -> list[Row]:
        """Of the records, and of what came since."""
        return [row for folder in (self.records, self.out) for row in read_rows(folder / name)]

    @property
    def kernels(self) -> list[Path]:
        """Those of docs/kernels.md."""
        there = {row["problem"]["id"] for row in read_rows(ROOT / "docs" / "records" / "kernels.jsonl")}
        files = sorted((ROOT / "solutions").glob("[0-9]*_cuda.py"))
        return [path for path in files if int(path.name[:2]) in (self.only or there)]


class Command(NamedTuple):
    words: list[str]
    after: Callable[[int], None] = lambda status: None
    """What is left to do when it has ended, with its exit status."""
    least_s: float = 0.0
    """It says nothing before."""


class Owed(NamedTuple):
    page: str
    items: list[str]
    commands: list[Command]
    seconds: float | None
    """By the records; None where they hold no seconds."""


def program(name: str, *words: object) -> list[str]:
    return [sys.executable, str(ROOT / "benchmarks" / name), *map(str, words)]


def all_of(each: Iterable[float | None]) -> float | None:
    known = list(each)
    return None if None in known else sum(filter(None, known))


def of_this_judge(row: Row) -> bool:
    """Whether a record's samples were taken as the present judge takes them."""
    return kernel_records.sampling(kernel_records.judge_of(row)) == kernel_records.sampling(suite().judge_version)


def listed(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


# -- kernels -------------------------------------------------------------------------------------------------------------


def kernels(at: Place, *, timed: bool) -> Owed:
    known, out = at.records / "kernels.jsonl", at.out / ("timed.md" if timed else "judged.md")
    full = plan("standard")
    chosen = verdict_table.times_only(full) if timed else replace(full, second_world_trials=0)
    done = verdict_table.done_in([known, out.with_suffix(".jsonl")])
    ranks = [count for count in at.ranks if not timed or count in {count for _, count in TIMED}]
    sizes = [size for size in at.sizes if not timed or size in dict(TIMED)]
    left = verdict_table.owed(at.kernels, ranks, sizes, chosen, platform=at.platform, timed=timed, done=done)
    cases = [Case(int(path.name[:2]), size, count) for (count, path), owed in left.items() for size in owed]
    how = "--times-only" if timed else f"--no-timing --no-second-world --no-profile --call-limit 60 --lanes {at.lanes}"
    command = program(
        "verdict_table.py", *dict.fromkeys(path for _, path in left), "--platform", at.platform, "--ranks", listed(ranks),
        "--size", listed(sizes), *how.split(), "--limit", LEFT, "--known", known, "--out", out,
    )  # fmt: skip
    rows = at.rows("kernels.jsonl")
    # Calls of `real` leave little room for others.
    beside = {size: 1 if timed or size == "real" else at.lanes for size in sizes}
    each = [(expected_s(rows, case, timed=timed), beside[case.size]) for case in cases]
    seconds = all_of(took and took / lanes for took, lanes in each)
    items = [f"{case.problem:02d} {case.size} {case.ranks}" for case in cases]
    return Owed("kernels.md", items, [Command(command)], seconds)


def slower(at: Place) -> dict[kernel_records.Case, Row]:
    """Kernels that take longer than before, each with its earlier verdict."""
    found = {}
    for case, known in kernel_records.read(at.records.glob("kernels.jsonl")).items():
        then, now = known.before, known.timed
        if not then or not now or other_shapes(then) or not of_this_judge(now):
            continue
        if now["timing"]["candidate_us"] > SLOWER * then["timing"]["candidate_us"]:
            found[case] = then
    return found


def texts_of_before(at: Place) -> dict[str, Path]:
    """The archive that holds each earlier text of a kernel, by the text's hash."""
    found = {}
    for archive in sorted(at.out.glob(BEFORE)):
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.name.startswith("solutions/") and (file := tar.extractfile(member)) is not None:
                    found[hashlib.sha256(file.read()).hexdigest()] = archive
    return found


def before(at: Place) -> Owed:
    """Times both texts of these kernels alternately, in the same ranks. The earlier texts are in archives (`owed.py` makes
    them); a kernel whose earlier text is in none stays owed."""
    sides: dict[tuple[str, str, int], set[str]] = {}
    for row in at.rows("before.jsonl"):
        if row["kit"] == fingerprint() and "errors" not in row:
            sides.setdefault((row["file"], row["size"], row["ranks"]), set()).add(row["variant"])
    groups: dict[tuple[Path, int, str], list[Path]] = {}
    items, archives = [], texts_of_before(at)
    for case, then in sorted(slower(at).items()):
        path = ROOT / "solutions" / then["candidate"]["file"]
        if len(sides.get((path.stem, case.size, case.ranks), ())) < 2:
            items.append(f"{path.name[:2]} {case.size} {case.ranks}")
            if (archive := archives.get(then["candidate"]["sha256"])) is not None:
                groups.setdefault((archive, case.ranks, case.size), []).append(path)
    commands = []
    for (archive, ranks, size), files in groups.items():
        asked = ("--platform", at.platform, "--ranks", ranks, "--sizes", size, "--before", archive)
        out = ("--limit", LEFT, "--out", at.out / "before.jsonl")
        commands.append(Command(program("kernel_trials.py", *files, *asked, *out)))
    return Owed("kernels.md", items, commands, None)


def published_kernels(at: Place) -> Owed:
    """Kernels of others, by both plans, as `frontier.py` keeps them."""
    size = "paper" if "paper" in at.sizes else at.sizes[0]
    known = frontier.known_in([at.records, at.out / "frontier"])
    like = CaseToJudge("", at.platform, at.ranks[0], size, AUTO)
    work = frontier.planned(frontier.parts_of(("standard", "published"), at.trees), like, known)
    asked = ("--platform", at.platform, "--ranks", at.ranks[0], "--size", size, "--lanes", at.lanes, "--budget", LEFT)
    only = ("--only", listed(sorted(at.only))) if at.only else ()
    tasks = [task for task in work.tasks.values() if task.problem_id in (at.only or {task.problem_id})]
    out = ("--have", at.records, "--out", at.out / "frontier")
    command = Command(program("frontier.py", *at.trees, *asked, *only, *out))
    items = [f"{task.collection} {task.case.plan} {task.problem_id:02d}" for task in tasks]
    return Owed("frontier.md", items, [command], None)


# -- other pages ---------------------------------------------------------------------------------------------------------


def by_backend(at: Place) -> Owed:
    rows = at.rows("backends.jsonl")
    done = {backends.key_of(row) for row in rows if row["verdict"] not in backends.AGAIN}
    found = []
    for ranks, each in itertools.product((4, 8), backends.candidates([*backends.BACKENDS], [])):
        problem, key = get(each.problem), (at.platform, each.problem, each.backend, backends.present_version(each))
        shown = each.backend != "triton" or each.problem == backends.SIDE_BY_SIDE
        if shown and (*key, ranks, "paper") not in done and not problem.why_not("paper", ranks, problem.default_dtype):
            found.append((each, ranks))
    there = {(row["problem"]["id"], row["benchmark"], row["ranks"]) for row in rows}
    new = Counter(each.problem for each, ranks in found if (each.problem, each.backend, ranks) not in there)
    commands = []
    for problem_id in sorted({each.problem for each, _ in found}, key=lambda number: (-new[number], number)):
        names = dict.fromkeys(each.backend for each, _ in found if each.problem == problem_id)
        asked = ("--problems", problem_id, "--backends", listed(names), "--ranks", "4,8", "--short", "--seconds", LEFT)
        out = ("--out", at.out / "backends.jsonl")
        commands.append(Command(program("backends.py", "--platform", at.platform, *asked, *out)))
    items = [f"{each.problem:02d} {each.backend} {ranks}" for each, ranks in found]
    return Owed("backends.md", items, commands, all_of([seconds_of(rows)] * len(items)))


def functions(at: Place) -> Owed:
    """References and baselines of the problems, at the sizes that the page shows."""
    items, ids = [], set()
    for function, name in references.FILES.items():
        there = {key[:2] for key in _taken(at, name)}
        for problem, size in itertools.product(default_registry().all(), ("paper", "real", "decode")):
            if references.runs(problem, function, size, max(at.ranks)) and (problem.id, size) not in there:
                items.append(f"{function} {problem.id:02d} {size}")
                ids.add(problem.id)
    words = _references(at, ids, ",".join(f"{size}:{max(at.ranks)}" for size in ("paper", "real", "decode")))
    return Owed("references.md", items, [Command(words)], None)


def alternatives(at: Place) -> Owed:
    there = {key[0] for key in _taken(at, "alternatives.jsonl")}
    left = [problem.id for problem in Registry(load_folder(references.ALTERNATIVES)).all() if problem.id not in there]
    words = [*_references(at, left), "--alternatives"]
    return Owed("references.md", [f"alternative {number}" for number in left], [Command(words)], None)


def truths(at: Place) -> Owed:
    """Problems whose ground truth in float64 has not been compared with anything at `real`."""
    names = [*(f"references/{name}" for name in references.FILES.values()), "truths/references.jsonl"]
    rows = [row for name in names for row in at.rows(name) if row["size"] == "real"]
    there = {row["id"] for row in rows if row["compared"] is not None or row["truth_peak_bytes"] or row["truth_error"]}
    wide = [problem for problem in default_registry().all() if problem.truth == "float64" and "real" in problem.sizes]
    left: dict[int, list[int]] = {}
    for problem in (problem for problem in wide if problem.id not in there):
        fits = max(at.ranks) if problem.why_not_on_one_gpu("real", max(at.ranks)) is None else 4
        left.setdefault(fits, []).append(problem.id)
    how = ("--truth", "--functions", "reference")
    commands = [Command([*_references(at, ids, f"real:{fits}", out="truths"), *how]) for fits, ids in left.items()]
    items = [f"truth of {number:02d}" for ids in left.values() for number in ids]
    return Owed("references.md", items, commands, None)


def _taken(at: Place, name: str) -> set[references.Key]:
    """Cases that have a time, or are known to have none here."""
    files = [folder / "references" / name for folder in (at.records, at.out)]
    return {key for file in files for key, row in references.read(file).items() if not references.failed(row)}


def _references(at: Place, ids: Iterable[int], cases: str = "", *, out: str = "references") -> list[str]:
    """Without cases, the program chooses them."""
    asked = ("--ids", listed(sorted(ids)), *(("--cases", cases) if cases else ()), "--retry", "--budget", LEFT)
    return program("references.py", "--platform", at.platform, *asked, "--out", at.out / out)


def showcases(at: Place) -> Owed:
    items, commands, took = [], [], list[Row]()
    for number, points in showcase.POINTS.items():
        problem, known = get(number), at.records / f"showcase-{number}.jsonl"
        kernel = next((ROOT / "solutions").glob(f"{number}_*.py"))
        version = f"{verdict_table.read(kernel).sha256} {fingerprint()}"
        files = (known, at.out / f"showcase-{number}" / "showcase.jsonl")
        rows = [row for file in files for row in read_rows(file) if showcase.is_measured(row)]
        done, took = {row["key"] for row in rows}, [*took, *(row["verdict"] for row in rows)]
        keys = {label: showcase.key_of(problem, label, size, 8, at.platform, version) for label, size in points.items()}
        if left := [f"{number}: {label}" for label, key in keys.items() if key not in done]:
            out = ("--known", known, "--out", at.out / f"showcase-{number}", "--times-only", "--budget", LEFT)
            commands.append(Command(program("showcase.py", number, "--platform", at.platform, *out)))
            items += left
    return Owed("showcase-72.md, -81, -82", items, commands, all_of([seconds_of(took)] * len(items)))


def window(at: Place) -> Owed:
    """The reference against itself, in several starts; and what was measured before ranks stopped sleeping in the window."""
    commands, items = [], []
    control = [row for row in at.rows("window-control.jsonl") if of_this_judge(row)]
    path = ROOT / "tests" / "adversaries" / "gpu" / "library_nccl.py"
    for size in ("paper", "real"):
        for start in range(sum(row["size"] == size for row in control), STARTS):
            how = ("--against", "reference", "--backend", "torch", "--out", at.out / "window-control.jsonl")
            commands.append(_window(at, path, size, *how))
            items.append(f"the reference against itself, {size}, start {start + 1}")
    there = {(row["problem"]["id"], row["size"]) for row in at.rows("window-noise.jsonl")}
    for row in (row for file in noise.AS_IT_WAS for row in read_rows(file)):
        if (row["problem"]["id"], row["size"]) not in there:
            kernel = ROOT / "solutions" / row["candidate"]["file"]
            commands.append(_window(at, kernel, row["size"], "--out", at.out / "window-noise.jsonl"))
            items.append(f"{row['problem']['id']:02d} {row['size']}")
    return Owed("power.md", items, commands, ROUNDS_S * len(items))


def _window(at: Place, path: Path, size: str, *words: object) -> Command:
    asked = ("--platform", at.platform, "--size", size, "--seconds", ROUNDS_S)
    return Command(program("window_noise.py", path, *asked, *words), least_s=ROUNDS_S + 40)  # ranks start in 3 to 35 s


def again(at: Place) -> Owed:
    """Judges the same candidates once more."""
    items, commands = [], []
    chosen = replace(plan("standard"), second_world_trials=0)
    for time in range(1, TIMES + 1):
        name = f"again-{time}.jsonl"
        done = verdict_table.done_in([at.records / name, at.out / name])
        files = [ROOT / file for file in TEN]
        left = verdict_table.owed(files, [4], ["paper"], chosen, platform=at.platform, timed=True, done=done)
        if left:
            asked = ("--platform", at.platform, "--ranks", 4, "--size", "paper", "--no-second-world", "--no-profile")
            limit = ("--limit", LEFT, "--took", at.records / "kernels.jsonl")
            out = ("--known", at.records / name, *limit, "--out", (at.out / name).with_suffix(".md"))
            commands.append(Command(program("verdict_table.py", *(path for _, path in left), *asked, *out)))
            items += [f"{path.stem}, time {time}" for _, path in left]
    timed = [row for row in at.rows("kernels.jsonl") if row["timing"] and (row["size"], row["ranks"]) == ("paper", 4)]
    return Owed("error-rates.md", items, commands, all_of([seconds_of(timed)] * len(items)))


# -- tests ---------------------------------------------------------------------------------------------------------------


def _gpu_tests(name: str, at: Place) -> Owed:
    """One test file at a time: those of a step, or the others."""
    files = sorted(path for path in (ROOT / "tests" / "gpu").glob("test_*.py") if path.name != JUDGED_ANYWAY)
    mine = [path for path in files if name == next((GPU_TESTS[one] for one in GPU_TESTS if path.match(one)), "tests")]
    units = {path.relative_to(ROOT).as_posix(): version(path, fingerprint()) for path in mine}
    return _tests(at, units, at_a_time=1)


def adversaries(at: Place) -> Owed:
    """All adversaries that are judged on a GPU, some in each run of pytest. Each has its own record, written when the run ends,
    so that one that has to be killed only costs its own run."""
    sys.path.insert(0, str(ROOT / "tests" / "adversaries"))
    from test_adversaries import parameters

    on_gpu = [one for one in parameters() if any(mark.name == "gpu" for mark in one.marks)]  # type: ignore[attr-defined]
    test = "tests/adversaries/test_adversaries.py::test_verdict"
    units = {f"{test}[{one.id}]": version(one.values[0]) for one in on_gpu}  # type: ignore[attr-defined]
    return _tests(at, units, at_a_time=ADVERSARIES_AT_A_TIME)


def version(path: Path, *rest: str) -> str:
    said = "\n".join([path.read_text(), str(suite().judge_version), *rest])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _tests(at: Place, units: dict[str, str], *, at_a_time: int) -> Owed:
    """Tests that failed, were skipped entirely or ran without a GPU stay owed."""
    rows, report = at.rows("tests.jsonl"), at.out / "junit.xml"
    ran = [row for row in rows if row["hardware"] and row["skipped"] < row["tests"] and not row["failed"]]
    done = {(row["test"], row["version"]) for row in ran}
    left = [unit for unit, text in units.items() if (unit, text) not in done]

    def keep(status: int) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        where = {"platform": at.platform, "hardware": create(at.platform).facts().hardware, "ended_at": now}
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
        report.unlink(missing_ok=True)
        for unit in left:
            _, case, name = unit.rpartition("::")
            module = unit.removesuffix(".py").replace("/", ".")
            mine = [one for one in cases if (one.get("name") == name if case else one.get("classname") == module)]
            if mine and (case or status in (0, 1)):  # else it was interrupted in the middle of a file
                failed = sum(one.find("failure") is not None or one.find("error") is not None for one in mine)
                skipped = sum(one.find("skipped") is not None for one in mine)
                row = {"test": unit, "version": units[unit], "tests": len(mine), "failed": failed, "skipped": skipped}
                row |= {"seconds": round(sum(float(one.get("time") or 0) for one in mine), 1), **where}
                add_row(at.out / "tests.jsonl", row)

    run = [sys.executable, "-m", "pytest", "-q", "--gpu", "-p", "no:cacheprovider", f"--junitxml={report}"]
    batches = [left[n : n + at_a_time] for n in range(0, len(left), max(1, at_a_time))]
    took = {row["test"]: row["seconds"] for row in rows}
    known = all(unit in took for unit in left)
    seconds = sum(took[unit] for unit in left) if known else None
    return Owed("tests on a GPU", left, [Command([*run, *batch], keep) for batch in batches], seconds)


STEPS: dict[str, Callable[[Place], Owed]] = {
    "frontier": published_kernels, "starts": partial(_gpu_tests, "starts"),
    "judged": partial(kernels, timed=False), "timed": partial(kernels, timed=True), "kit": partial(_gpu_tests, "kit"),
    "backends": by_backend, "functions": functions, "showcases": showcases, "window": window, "adversaries": adversaries,
    "before": before, "again": again, "truths": truths, "alternatives": alternatives, "tests": partial(_gpu_tests, "tests"),
}  # fmt: skip
"""In the order of worth."""
