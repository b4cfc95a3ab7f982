"""The page, the passes and the run of others' candidates; long because all are tried on the same hand-made records."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pkb.analysis.lost import AS_PUBLISHED
from pkb.problems.registry import default_registry
from pkb.problems.suite import suite
from pkb.store import Store
from pkb.types.plan import MORE_S
from program_files import program

ROOT = Path(__file__).parents[2]


for shared in (
    "gpu_share", "frontier_counts", "frontier_passes", "references", "reference_report", "frontier_claims",
):  # fmt: skip
    program(f"benchmarks/{shared}.py")
frontier, pages, runs = map(program, ("benchmarks/frontier.py", "benchmarks/frontier_page.py", "tools/frontier_run.py"))
passes = sys.modules["frontier_passes"]
headers, counts = program("benchmarks/both_headers.py"), program("benchmarks/frontier_counts.py")
races = program("benchmarks/frontier_races.py")


VERSIONS = {problem.id: problem.version for problem in default_registry().all()}


def record(
    number: int, name: str, verdict: str, *, plan: str, collection: str = "gpt-5.5 cuda", **more: Any
) -> dict[str, Any]:
    said = {
        "verdict": verdict, "stage": "done" if verdict == "correct" else "correctness", "platform": "virtual", "size": "paper",
        "dtype": "bf16", "plan": plan, "ranks": 4, "schema": 2, "detail": "", "hardware": "NVIDIA H200",
        "problem": {"id": number, "name": name, "version": VERSIONS[number]}, "stage_seconds": {"start": 4.0},
        "candidate": {"file": f"{number:02d}_{name}_cuda.py", "sha256": f"{number:064x}", "backend": "cuda"},
        "paths": ["sm_load_store"], "suite": {"version": suite().version, "judge": suite().judge_version},
    }  # fmt: skip
    return {"collection": collection, "problem": number, "sample": 0, "evaluation": said | more}


def timing(speedup: float) -> dict[str, Any]:
    times = {"reference_us": 100.0, "candidate_us": 100 / speedup, "speedup": speedup}
    ends = {"speedup_low": speedup - 0.1, "speedup_high": speedup + 0.1, "decision": "faster"}
    return times | ends | {"roofline": {"candidate_utilisation": 0.4, "reference_utilisation": 0.2}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = [
        record(1, "allreduce", "correct", plan="standard", timing=timing(1.5)),
        record(1, "allreduce", "correct", plan="published", timing=timing(1.4)),
        record(2, "allgather", "race", plan="standard", stage="races", race_kind="stale_read"),
        record(2, "allgather", "correct", plan="published", timing=timing(1.2)),
        record(3, "broadcast", "deadlock", plan="standard"),
        record(3, "broadcast", "deadlock", plan="published"),
    ]
    for one in records:
        path = passes.record_file(tmp_path, one["collection"], one["evaluation"]["plan"])
        with path.open("a") as out:
            out.write(json.dumps(one) + "\n")
    (tmp_path / frontier.COUNTS).write_text(json.dumps({"gpt-5.5 cuda": {"files": 83, "gone": 1, "refused": 0}}))
    return tmp_path


def test_the_page_counts_what_the_records_say(folder: Path) -> None:
    page = pages.page(folder)
    assert "| gpt-5.5 cuda | 83 | 1 / 0 | 28 / 22 | 36 / 27 | 2 / 2 of 3 | 1 / 1 of 3 | 0 | 0 / 0 | 0 / 0 |" in page
    assert "| lost: fails when calls are queued or a rank comes late | 1 |" in page
    assert "| collective | 8 | 8 | 3 / 3 | 5 / 4 | 2 / 2 of 3 | 1 / 1 of 3 |" in page
    assert "| gpt-5.5 cuda | as published | 2 of 2 | 40.0% | 40.0% | 2 of 2 (100%) |" in page
    assert "| gpt-5.5 cuda | ours | 1 of 1 | 40.0% | 40.0% | 1 of 1 (100%) |" in page
    assert "first or best answer: gpt-5.5 cuda 2 of 3 (67%), so far | cannot be said" in page
    assert "- gpt-5.5 cuda: 3 of 82 judged as published, 2 of them right; totals cannot be compared yet" in page
    assert "| gpt-5.5 cuda | 83 | 82 | 3 of 82 | 0 | 0 | 3 of 82 | 0 | 0 |" in page
    assert "| deadlock | 5, 1, 1 |" in page


def test_the_page_says_what_is_provisional(folder: Path) -> None:
    passes.keep(folder, record(4, "reduce", "correct", plan="standard") | {"beside": 3, "provisional": True})
    passes.keep(folder, record(5, "scatter", "crash", plan="standard") | {"beside": 3, "provisional": True})
    (folder / frontier.COST).write_text(
        json.dumps([{"lanes": 3, "seconds": 24.0, "verdicts": {"correct": 9, "race": 3}, "gpu_busy": 0.5}])
    )
    page = pages.page(folder)
    assert "| gpt-5.5 cuda | 83 | 82 | 5 of 82 | 1 | 1 | 3 of 82 | 0 | 0 |" in page
    assert "2 / 1 of 5 (1 of them not timed)" in page
    assert (
        "12 evaluations, repeated ones included, took 24 s of the machine with builds: 2.0 s each, 1800 an hour, 3.0 s"
        in page
    )


def test_without_records_it_says_how_to_make_them(tmp_path: Path) -> None:
    page = pages.page(tmp_path)
    assert "There are no records yet" in page
    assert "benchmarks/frontier.py" in page


@pytest.mark.parametrize(("page", "records"), [("frontier.md", "."), ("frontier-cpu.md", "frontier-cpu")])
def test_the_page_is_the_one_of_these_records(page: str, records: str) -> None:
    assert (ROOT / "docs" / page).read_text() == pages.page(ROOT / "docs" / "records" / records)


def test_what_has_a_record_is_known(folder: Path) -> None:
    known = passes.known_in([folder])
    assert len(known) == 6
    assert ("gpt-5.5 cuda", "published", 2, f"{2:064x}") in known


def test_a_later_verdict_takes_the_place_of_a_provisional_one(tmp_path: Path) -> None:
    first = record(1, "allreduce", "correct", plan="standard") | {"beside": 3, "provisional": True}
    passes.keep(tmp_path, first)
    passes.keep(tmp_path, record(2, "allgather", "wrong", plan="standard") | {"beside": 3})
    keys = {number: ("gpt-5.5 cuda", "standard", number, f"{number:064x}") for number in (1, 2)}
    assert passes.known_in([tmp_path]) == {keys[1]: "correct", keys[2]: ""}
    passes.keep(tmp_path, record(1, "allreduce", "correct", plan="standard", timing=timing(1.5)))
    assert passes.known_in([tmp_path]) == {keys[1]: "", keys[2]: ""}
    (path,) = tmp_path.iterdir()
    lines = list(map(json.loads, path.read_text().splitlines()))
    assert [line["problem"] for line in lines] == [2, 1]
    (tmp_path / "earlier").mkdir()
    passes.keep(tmp_path / "earlier", first)
    both = [tmp_path, tmp_path / "earlier"]
    assert passes.known_in(both) == passes.known_in(both[::-1]) == {keys[1]: "", keys[2]: ""}


def test_records_of_another_folder_are_added_once_and_settle_what_is_provisional(tmp_path: Path) -> None:
    came, kept = tmp_path / "came", tmp_path / "kept"
    for folder in (came, kept):
        folder.mkdir()
    in_company = {"beside": 3, "provisional": True}
    passes.keep(kept, record(1, "allreduce", "correct", plan="standard") | in_company)
    passes.keep(kept, record(2, "allgather", "wrong", plan="standard"))
    passes.keep(came, record(1, "allreduce", "correct", plan="standard", timing=timing(1.5)))
    passes.keep(came, record(2, "allgather", "deadlock", plan="standard") | in_company)
    passes.keep(came, record(3, "broadcast", "race", plan="standard"))
    (kept / counts.COUNTS).write_text(json.dumps({"a": {"paths": {"nvls": 1}}, "b": {"files": 1}}))
    (came / counts.COUNTS).write_text(json.dumps({"a": {"files": 9}}))
    (came / counts.COST).write_text(json.dumps([{"lanes": 4}]))
    for _ in range(2):
        passes.merge(came, kept)
        lines = [json.loads(line) for path in kept.glob("*.jsonl") for line in path.read_text().splitlines()]
        words = {line["problem"]: (line["evaluation"]["verdict"], line.get("provisional", False)) for line in lines}
        assert len(lines) == 3
        assert words == {1: ("correct", False), 2: ("wrong", False), 3: ("race", False)}
        assert json.loads((kept / counts.COUNTS).read_text()) == {
            "a": {"paths": {"nvls": 1}, "files": 9},
            "b": {"files": 1},
        }
        assert json.loads((kept / counts.COST).read_text()) == [{"lanes": 4}]
    passes.merge(tmp_path / "missing", kept)


def test_no_order_of_archives_loses_times(tmp_path: Path) -> None:
    untimed = record(1, "allreduce", "correct", plan="standard") | {"beside": 3, "provisional": True}
    near = record(1, "allreduce", "correct", plan="standard", timing=timing(1.2)) | {"provisional": True}
    older = record(1, "allreduce", "race", plan="standard", suite={"version": 1, "judge": suite().judge_version - 1})
    kept = tmp_path / "kept"
    kept.mkdir()
    for number, one in enumerate((older, untimed, near, untimed, older)):
        (tmp_path / str(number)).mkdir()
        passes.keep(tmp_path / str(number), one)
        passes.merge(tmp_path / str(number), kept)
        (line,) = [json.loads(line) for path in kept.glob("*.jsonl") for line in path.read_text().splitlines()]
        assert line == (older, untimed, near, near, near)[number]


def test_what_was_judged_by_other_rules_is_judged_again(tmp_path: Path) -> None:
    older = record(1, "allreduce", "race", plan="standard", suite={"version": 1, "judge": suite().judge_version - 1})
    passes.keep(tmp_path, older)
    other = {"id": 2, "name": "allgather", "version": VERSIONS[2] + 1}
    passes.keep(tmp_path, record(2, "allgather", "race", plan="standard", problem=other))
    assert passes.known_in([tmp_path]) == {}
    passes.keep(tmp_path, record(1, "allreduce", "correct", plan="standard"))
    assert list(passes.known_in([tmp_path]).values()) == [""]


@pytest.mark.parametrize(
    ("verdict", "more", "provisional"),
    [
        ("correct", {}, True),
        ("reused_output", {}, True),
        ("deadlock", {}, True),
        ("crash", {}, True),
        ("wrong", {}, False),
        ("race", {}, False),
        ("wrong", {"plan": "published"}, True),
        ("runtime_error", {"failure": {"name": "TypeError", "message": "no"}}, False),
        ("runtime_error", {"failure": {"name": "OutOfMemoryError", "message": "CUDA out of memory"}}, True),
        ("runtime_error", {"failure": {"name": "RuntimeError", "message": "wait timed out after 5 s"}}, True),
        ("compile_error", {"failure": {"kind": "build_limit", "message": "600 s"}}, True),
        ("compile_error", {"failure": {"kind": "compiler", "message": "no"}}, False),
    ],
)
def test_what_company_may_have_caused_is_judged_again(verdict: str, more: dict[str, Any], provisional: bool) -> None:
    said = record(1, "allreduce", verdict, **({"plan": "standard"} | more))["evaluation"]
    assert passes.is_provisional(said) is provisional


def test_each_pass_has_its_files_and_multicast_comes_last(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for number, name, text in (
        (1, "allreduce", "multimem.st"), (2, "allgather", ""), (3, "broadcast", ""), (4, "reduce", ""), (5, "scatter", ""),
    ):  # fmt: skip
        (tree / f"{number}_{name}_cuda.py").write_text(f"# {number} {text}\n")
    like = frontier.Case("", "cpu", 4, "tiny", "auto")
    parts = frontier.parts_of(["quick", "published"], [tree])
    all_new = frontier.planned(parts, like, {})
    of = {task.problem_id: frontier.sha_of(all_new.files[key]) for key, task in all_new.tasks.items()}
    known = {("tree", "quick", n, of[n]): verdict for n, verdict in ((2, "correct"), (3, "deadlock"), (4, ""))}
    work = frontier.planned(parts, like, known)

    def problems(name: str, only: set[int]) -> list[tuple[int, str]]:
        return [(task.problem_id, task.case.plan) for task in frontier.part_of(work, name, only).tasks.values()]

    assert problems("words", set())[:2] == [(5, "quick"), (2, "published")]
    assert problems("words", {1, 2}) == [(2, "published"), (1, "quick"), (1, "published")]
    assert problems("times", set()) == [(2, "quick")]
    assert problems("doubts", set()) == [(3, "quick")]


def test_a_rented_gpu_is_used_in_the_order_of_worth() -> None:
    names = ("solutions_triton_bf16_h100_8_google_gemini-3-pro-preview", *list(frontier.TREES)[:2])
    triton, first, second = map(Path, names)
    found = [
        (phase.name, [(part.plan, part.tree) for part in phase.parts])
        for phase in frontier.phases([triton, first, second], ["standard", "published"])
    ]
    by_tree = [[(plan, tree) for plan in ("standard", "published")] for tree in (first, second, triton)]
    assert found[:9] == [(name, parts) for parts in by_tree for name in ("words", "times", "doubts")]
    assert [name for name, _ in found[9:]] == ["near", "reused"]
    every = sorted(part for tree in by_tree for part in tree)
    assert all(sorted(parts) == every for _, parts in found[9:])
    (one,) = frontier.phases([first], ["quick"], ["times"])
    assert one == ("times", (("quick", first),)), "no phase without files"


@pytest.mark.parametrize(
    ("verdict", "plan", "name"),
    [
        (None, "standard", "words"), ("correct", "standard", "times"), ("reused_output", "standard", "reused"),
        ("reused_output", "published", "times"), ("crash", "standard", "doubts"), ("wrong", "published", "doubts"),
        (passes.NEAR, "standard", "near"),
    ],
)  # fmt: skip
def test_where_a_file_belongs(verdict: str | None, plan: str, name: str) -> None:
    assert passes.pass_of(verdict, plan) == name


@pytest.mark.parametrize(
    ("speedup", "plan", "name"),
    [(1.2, "standard", "near"), (0.7, "standard", "near"), (1.6, "standard", ""), (1.2, "published", "")],
)
def test_times_near_1_are_taken_again_with_all_rounds_and_starts(
    tmp_path: Path, speedup: float, plan: str, name: str
) -> None:
    one = record(1, "allreduce", "correct", plan=plan)
    document = one["evaluation"] | {"timing": {"speedup": speedup}}
    passes.keep(tmp_path, one | {"evaluation": document, "provisional": passes.is_near(document)})
    ((_, said),) = passes.known_in([tmp_path]).items()
    assert (passes.pass_of(said, plan) if said else "") == name


def task(key: int, sha: str = "a") -> SimpleNamespace:
    case = SimpleNamespace(ranks=4, platform="virtual", size="paper", dtype="bf16", plan="standard")
    return SimpleNamespace(key=str(key), collection="gpt-5.5 cuda", problem="01_allreduce", problem_id=1, sample=0, case=case,
                           backend="cuda", candidate_sha=sha)  # fmt: skip


@pytest.mark.parametrize(("verdict", "left"), [("correct", "correct"), ("deadlock", "deadlock"), ("harness_error", "")])
def test_no_verdict_takes_the_place_of_none_only(tmp_path: Path, verdict: str, left: str) -> None:
    """What was judged in company and got no verdict alone is still owed one."""
    earlier, out = tmp_path / "earlier", tmp_path / "out"
    for folder in (earlier, out):
        folder.mkdir()
    passes.keep(earlier, record(1, "allreduce", verdict, plan="standard") | {"beside": 5, "provisional": True})
    ((key, _),) = passes.known_in([earlier]).items()
    watcher = passes.Recorder(
        SimpleNamespace(), SimpleNamespace(id="r"), out, total=1, lanes=1, known=passes.known_in([earlier])
    )
    watcher.failed(task(0, sha=f"{1:064x}"), "late: 240 s", again=False)
    assert passes.known_in([earlier, out]) == {key: left}


def test_a_machine_on_which_nothing_gets_a_verdict_is_given_up(tmp_path: Path) -> None:
    documents = [record(n, "allreduce", v, plan="standard", stage=stage)["evaluation"] for n, v, stage in (
        (1, "wrong", "correctness"), (2, "compile_error", "build"),
    )]  # fmt: skip

    class FakeStore:
        document = staticmethod(documents.__getitem__)

        def evaluations(self, runs: list[str]) -> list[SimpleNamespace]:
            return [SimpleNamespace(task_key=str(n), document_sha=n) for n in range(2)]

    watcher = passes.Recorder(FakeStore(), SimpleNamespace(id="r"), tmp_path, total=9, lanes=5, known={})
    most = sys.modules["kernel_records"].MOST_IN_A_ROW - 1
    for _ in range(most):
        watcher.failed(task(0), "MPS does not start", again=True)
    watcher.judged(task(0), "wrong", "")  # its ranks have run
    for number in range(most):
        watcher.failed(task(0), "MPS does not start", again=number > 0)
    watcher.judged(task(1), "compile_error", "")  # nothing has run
    with pytest.raises(SystemExit, match=str(sys.modules["kernel_records"].MACHINE_FAILS)):
        watcher.failed(task(0), "MPS does not start", again=True)
    kept = [json.loads(line) for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert [(one["evaluation"]["verdict"], one.get("provisional"), one.get("beside")) for one in kept] == [
        ("wrong", None, 5), ("harness_error", True, 5), ("compile_error", None, None),
    ]  # fmt: skip


def test_verdicts_with_either_header_are_compared(tmp_path: Path) -> None:
    for way, verdict in (("ours", "race"), ("real", "wrong")):
        (tmp_path / way).mkdir()
        passes.keep(tmp_path / way, record(1, "allreduce", "correct", plan="standard"))
        passes.keep(tmp_path / way, record(2, "allgather", verdict, plan="standard"))
        # Builds for the emulated GPU know one way only: that they agree says nothing.
        passes.keep(tmp_path / way, record(5, "reduce_scatter", "correct", plan="standard", platform="cpu"))
    passes.keep(tmp_path / "ours", record(3, "broadcast", "correct", plan="standard"))
    ours, real = (headers.reached_in(tmp_path / way) for way in ("ours", "real"))
    first, *others = headers.words(ours, real)
    assert first == "the same verdict at the same stage: 1 of 2 (1 correct)"
    assert len(others) == 1
    assert "race at correctness with ours, wrong at correctness with torch's own" in others[0]


def test_records_become_a_run_once(folder: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        run = runs.load(store, folder)
        assert run is not None
        assert runs.load(store, folder).id == run.id
        rows = list(store.evaluations([run.id]))
        assert len(rows) == 6
        tasks = store.tasks(run.id)
        assert {task.collection for task in tasks} == {"gpt-5.5 cuda", f"gpt-5.5 cuda{AS_PUBLISHED}"}
        assert all(task.state == "done" for task in tasks)
        assert runs.load(store, tmp_path / "store") is None


def test_verdicts_on_cpu_stand_beside_those_of_an_h200_by_class(tmp_path: Path) -> None:
    here = {1: "race", 2: "runtime_error", 3: "wrong", 5: "correct"}
    for number, verdict in here.items():
        name = default_registry().get(str(number)).name
        one = record(number, name, verdict, plan="standard")
        passes.keep(tmp_path, one | {"evaluation": one["evaluation"] | {"platform": "cpu"}})
    rows = [f"gpt-5.5 cuda,{n},{word}" for n, word in ((1, "correct"), (2, "crash"), (3, "race"), (4, "deadlock"))]
    (tmp_path / counts.H200).write_text("\n".join(["collection,problem,verdict", *rows]))
    text = pages.page(tmp_path)
    assert "| right | 1 |  |" in text, "called right there and wrong here"
    assert "2 of 3 files are in the same class" in text, "a file without a verdict here is not counted"


def test_the_readme_says_how_many_verdicts_a_gpu_shares() -> None:
    on_gpu, on_cpu = (
        counts.verdicts_of(counts.trees_of(ROOT / "docs" / "records" / part)) for part in (".", "frontier-cpu")
    )
    same = sum(on_cpu.get(key) == verdict for key, verdict in on_gpu.items())
    said = f"{len(on_gpu)} have been judged on an H200 as well so far, and {same} got the same verdict there"
    assert said in " ".join((ROOT / "README.md").read_text().split())


def test_a_gpus_verdicts_stand_beside_those_of_the_same_files_without_one(tmp_path: Path) -> None:
    for folder, said in (
        (tmp_path, {1: "correct", 2: "crash", 3: "wrong"}),
        (tmp_path / "frontier-cpu", {1: "race", 2: "crash"}),
    ):
        folder.mkdir(exist_ok=True)
        for number, verdict in said.items():
            passes.keep(folder, record(number, default_registry().get(str(number)).name, verdict, plan="standard"))
    text = pages.page(tmp_path)
    assert "1 of 2 files are in the same class" in text
    assert "| on the GPU | wrong | run-time error |" in text
    assert "| right | 1 |  |" in text
    assert "| run-time error |  | 1 |" in text
    assert "## Beside the same files" not in pages.page(tmp_path / "frontier-cpu")


def test_what_is_right_without_a_gpu_decides_no_claim_about_one(tmp_path: Path) -> None:
    for platform, decides in (("virtual", True), ("cpu", False)):
        folder = tmp_path / platform
        folder.mkdir()
        one = record(1, "allreduce", "correct", plan="published")
        passes.keep(folder, one | {"evaluation": one["evaluation"] | {"platform": platform}})
        (folder / frontier.COUNTS).write_text(json.dumps({"gpt-5.5 cuda": {"files": 1}}))
        row = next(line for line in pages.page(folder).splitlines() if line.startswith("| fewer than 35"))
        assert ("does not agree" in row) is decides
        assert ("cannot be said" in row) is not decides


def traced(
    number: int, verdict: str, *, plan: str, kind: str = "", found: str = "", why_not: str = ""
) -> dict[str, Any]:
    access = {"candidate_line": 7}
    findings = [{"kind": found, "first": access, "second": access}] if found else []
    proof = {"traces": 3, "events": 10, "findings": findings, "why_not": why_not}
    return record(number, "allreduce", verdict, plan=plan, race_kind=kind, race_proof=proof)


def test_races_that_only_the_detector_sees_are_listed_apart() -> None:
    reused, relaxed = "buffer_reused_too_early", "relaxed_where_release_acquire_is_needed"
    files = races.by_file([
        traced(1, "race", plan="quick", kind=reused, found=reused), traced(1, "wrong", plan="published", found=reused),
        traced(2, "race", plan="quick", kind=reused, found=reused), traced(2, "race", plan="published", kind="stale_read"),
        traced(3, "wrong", plan="quick", found=relaxed),
        traced(4, "race", plan="quick", kind="missing_end_barrier"),
        traced(5, "correct", plan="quick"), traced(5, "runtime_error", plan="published"),
        traced(6, "race", plan="quick", kind="stale_read", why_not="left out here"),
        record(7, "allreduce", "crash", plan="published"),
        traced(8, "wrong", plan="quick"), traced(8, "race", plan="published", kind=relaxed, found=relaxed),
    ])  # fmt: skip
    classes = {number: races.class_of(records) for (_, number, _), records in files.items()}
    assert classes == {
        1: races.ALONE, 2: races.BOTH, 3: races.EXPLAINED, 4: races.NOT_PROVEN, 5: races.CLEAN, 6: races.UNDECIDED,
        7: races.EARLIER, 8: races.ALONE,
    }  # fmt: skip
    page = races.table(files)
    assert f"| {races.ALONE} | 2 | 2 |" in page
    assert "| gpt-5.5 cuda | 8 | published | `relaxed_where_release_acquire_is_needed` | 7/7 |" in page
    assert "| gpt-5.5 cuda | 2 |" not in page


def test_files_that_end_before_a_trace_are_judged_once() -> None:
    assert [races.wanted(plan, "crash") for plan in ("published", "quick")] == [True, False]
    assert [races.wanted(plan, "compile_error") for plan in ("published", "quick")] == [False, False]
    assert [races.wanted(plan, None) for plan in ("published", "quick")] == [True, True]


def test_what_is_timed_may_take_more_rounds_and_starts() -> None:
    """A gain near 1 is no lane that is stuck: ended twice as `late`, it would have no verdict."""
    beside, hurried, alone = (
        frontier.settings_for("virtual", name, lanes=lanes, call_limit_s=None)
        for name, lanes in (("words", 5), ("times", 1), ("near", 1))
    )
    assert (beside.timing, hurried.timing, alone.timing) == (False, None, None)
    assert (hurried.more_s, alone.more_s) == (0, MORE_S)
    assert alone.evaluation_limit_s - beside.evaluation_limit_s == 2 * MORE_S
    assert hurried.evaluation_limit_s == beside.evaluation_limit_s, "it adds neither rounds nor starts"
    assert (
        frontier.settings_for("cpu", "near", lanes=1, call_limit_s=None).evaluation_limit_s > alone.evaluation_limit_s
    )
