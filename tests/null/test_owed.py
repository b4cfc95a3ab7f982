"""What is owed follows from the records: there is nothing to keep by hand, and nothing that is there is measured again."""

import hashlib
import json
import signal
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pkb.candidates.source import read
from pkb.kit.fingerprint import fingerprint
from pkb.problems import get
from pkb.problems.suite import suite
from program_files import ROOT, program

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)  # they import each other
    return program("benchmarks/owed_steps.py")


@pytest.fixture
def owed(steps: Any) -> Any:
    return program("benchmarks/owed.py")


def place(steps: Any, folder: Path, platform: str = "virtual", **asked: Any) -> Any:
    """Without any record."""
    for name in ("records", "out"):
        (folder / name).mkdir(exist_ok=True)
    return steps.Place(platform, folder / "out", folder / "records", **asked)


def write(path: Path, *rows: Any) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def verdict(kernel: str, size: str, **changes: Any) -> dict[str, Any]:
    path = next((ROOT / "solutions").glob(f"{kernel}_*_cuda.py"))
    problem = get(int(kernel))
    return {
        "verdict": "correct", "platform": "virtual", "ranks": 2, "size": size, "plan": "standard", "timing": None,
        "candidate": {"sha256": read(path).sha256}, "problem": {"id": problem.id, "version": problem.version},
        "suite": {"judge": suite().judge_version}, "environment": {"kit": fingerprint()},
    } | changes  # fmt: skip


def test_a_case_is_owed_until_there_is_a_verdict_of_the_present_text(steps: Any, tmp_path: Path) -> None:
    at = place(steps, tmp_path, ranks=(2,), sizes=("tiny", "odd"), only=frozenset({1, 6}))
    assert steps.STEPS["judged"](at).items == ["01 tiny 2", "01 odd 2", "06 tiny 2", "06 odd 2"]
    write(at.records / "kernels.jsonl", verdict("01", "tiny"), verdict("06", "odd", environment={"kit": "another"}))
    write(at.out / "judged.jsonl", verdict("06", "tiny"))
    found = steps.STEPS["judged"](at)
    assert found.items == ["01 odd 2", "06 odd 2"]
    assert found.seconds is None, "no record holds any"
    words = found.commands[0].words
    assert words[words.index("--known") + 1] == str(at.records / "kernels.jsonl")
    assert words[words.index("--limit") + 1] == steps.LEFT
    write(at.out / "judged.jsonl", *(verdict(kernel, size) for kernel in ("01", "06") for size in ("tiny", "odd")))
    assert not steps.STEPS["judged"](at).items


def test_seconds_are_those_of_the_same_kernel_without_what_is_not_done(steps: Any, tmp_path: Path) -> None:
    at = place(steps, tmp_path, ranks=(2,), sizes=("tiny",), only=frozenset({1, 6}), lanes=2)
    older = {"environment": {}, "stage_seconds": {"start": 4.0, "timing": 90.0}, "timing": {}}
    write(at.records / "kernels.jsonl", verdict("01", "tiny", **older))
    assert steps.STEPS["judged"](at).seconds == (4 + 4) / 2, (
        "of another kernel where there is none of its own; two at a time"
    )


def test_every_step_names_programs_that_exist_and_ends_in_time(steps: Any, tmp_path: Path) -> None:
    at = place(steps, tmp_path, ranks=(4, 8, 2), trees=(tree_of(tmp_path, "1_allreduce_cuda.py"),))
    for name, step in steps.STEPS.items():
        found = step(at)
        assert found.items or name == "before", name
        for command in found.commands:
            interpreter, script, *words = command.words
            assert interpreter == sys.executable
            assert script == "-m" or Path(script).is_file()
            # pytest and a measurement of some seconds are interrupted, the others end by themselves.
            assert steps.LEFT in words or script == "-m" or "--seconds" in words, name


def tree_of(folder: Path, *names: str) -> Path:
    tree = folder / "tree"
    tree.mkdir()
    for name in names:
        (tree / name).write_text(f"# {name}\n")
    return tree


def test_published_kernels_are_owed_by_both_plans_until_their_records_are_settled(steps: Any, tmp_path: Path) -> None:
    """Also where the platform is another machine's."""
    tree = tree_of(tmp_path, "1_allreduce_cuda.py", "2_allgather_cuda.py", "6_gather_cuda.py")
    at = place(steps, tmp_path, trees=(tree,), only=frozenset({1, 2}))
    step = steps.STEPS["frontier"]
    assert next(iter(steps.STEPS)) == "frontier", "a whole page of docs rests on it"
    assert step(at).items == [f"tree {plan} 0{n}" for plan in ("standard", "published") for n in (1, 2)]
    problem, text = get(1), read(tree / "1_allreduce_cuda.py").sha256
    said = {"verdict": "correct", "plan": "standard", "problem": {"id": 1, "version": problem.version}}
    said |= {"candidate": {"sha256": text}, "suite": {"judge": suite().judge_version}}
    row = {"collection": "tree", "problem": 1, "evaluation": said}
    (at.out / "frontier").mkdir()
    for changes, left in (({"provisional": True}, 4), ({}, 3)):
        write(at.out / "frontier" / "frontier-tree-standard.jsonl", row | changes)
        found = step(at)
        assert len(found.items) == left
    (command,) = found.commands
    words = command.words
    assert words[words.index("--out") + 1] == str(at.out / "frontier")
    assert words[words.index("--have") + 1] == str(at.records)
    assert words[words.index("--only") + 1] == "1,2"


def test_the_reference_is_held_against_itself_by_the_present_judge(steps: Any, tmp_path: Path) -> None:
    at = place(steps, tmp_path)
    control = {"size": "paper", "suite": {"judge": suite().judge_version}}
    before = len(steps.window(at).items)
    write(at.records / "window-control.jsonl", control, control | {"suite": {"judge": 1}})
    write(at.out / "window-control.jsonl", control)
    assert len(steps.window(at).items) == before - 2


def test_what_failed_or_was_skipped_is_no_record_of_a_test(steps: Any, tmp_path: Path) -> None:
    at = place(steps, tmp_path)
    first, second, third = (f"tests/x.py::test[{name}]" for name in "abc")
    cases = '<testcase name="test[a]" time="1.5"/><testcase name="test[b]"><failure/></testcase>'
    cases += '<testcase name="test[c]"><skipped/></testcase>'
    found = steps._tests(at, {first: "1", second: "1", third: "1"}, at_a_time=3)
    assert found.items == [first, second, third]
    (at.out / "junit.xml").write_text(f"<testsuite>{cases}</testsuite>")
    found.commands[0].after(2)  # interrupted after these
    rows = [json.loads(line) for line in (at.out / "tests.jsonl").read_text().splitlines()]
    assert [(row["test"], row["failed"], row["skipped"]) for row in rows] == [
        (first, 0, 0),
        (second, 1, 0),
        (third, 0, 1),
    ]
    write(at.out / "tests.jsonl", *(row | {"hardware": ""} for row in rows))
    assert steps._tests(at, {first: "1"}, at_a_time=3).items == [first], "it ran without a GPU"
    write(at.out / "tests.jsonl", *(row | {"hardware": "H200"} for row in rows))
    assert steps._tests(at, {first: "1", second: "1", third: "1"}, at_a_time=3).items == [second, third]
    assert steps._tests(at, {first: "2"}, at_a_time=1).items == [first], "another text of the test"


def test_tests_on_a_gpu_need_no_plugin_of_pytest() -> None:
    """A machine that is lent has pytest at best."""
    asked = ["-q", "-p", "no:timeout", "-p", "no:xdist", "-p", "no:cacheprovider", "--gpu", "--collect-only"]
    files = ["tests/gpu", "tests/adversaries/test_adversaries.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *asked, *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_file_of_tests_that_was_interrupted_is_not_done(steps: Any, tmp_path: Path) -> None:
    at = place(steps, tmp_path, platform="cpu")  # which has hardware wherever this runs
    report = '<testsuite><testcase classname="tests.gpu.test_x" name="test_a"/></testsuite>'
    for status, left in ((2, ["tests/gpu/test_x.py"]), (0, [])):
        (at.out / "junit.xml").write_text(report)
        steps._tests(at, {"tests/gpu/test_x.py": "1"}, at_a_time=1).commands[0].after(status)
        assert steps._tests(at, {"tests/gpu/test_x.py": "1"}, at_a_time=1).items == left


def test_a_run_that_is_killed_costs_few_adversaries(steps: Any, tmp_path: Path) -> None:
    """pytest writes down what it has found when it ends."""
    found = steps.STEPS["adversaries"](place(steps, tmp_path))
    asked = [[word for word in command.words if "::" in word] for command in found.commands]
    assert [one for some in asked for one in some] == found.items
    assert max(map(len, asked)) <= steps.ADVERSARIES_AT_A_TIME < len(found.items)


def test_no_file_of_tests_is_owed_that_never_ends_in_time(steps: Any, tmp_path: Path) -> None:
    """Interrupted in the middle it stays owed, and would be begun again each time."""
    every = [item for name in ("starts", "kit", "tests") for item in steps.STEPS[name](place(steps, tmp_path)).items]
    left_out = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/gpu").glob("test_*.py")} - set(every)
    assert left_out == {f"tests/gpu/{steps.JUDGED_ANYWAY}"}
    assert every[0] == "tests/gpu/test_against_gpu.py"
    names = [*steps.STEPS]
    assert names.index("starts") < names.index("timed"), "before minutes rest on what has run on no GPU"


def test_kernels_of_before_are_compared_when_both_ran(steps: Any, tmp_path: Path) -> None:
    at = place(steps, tmp_path)
    older = json.loads((ROOT / "docs" / "records" / "kernels.jsonl").read_text().splitlines()[0])
    now = older | {"started_at": "2100", "suite": {"judge": suite().judge_version}, "verdict": "correct"}
    rows = [older | {"suite": None, "timing": {"candidate_us": 100.0}}, now | {"timing": {"candidate_us": 104.0}}]
    write(at.records / "kernels.jsonl", *rows)
    (item,) = steps.before(at).items
    row = {
        "file": Path(older["candidate"]["file"]).stem,
        "size": older["size"],
        "ranks": older["ranks"],
        "kit": fingerprint(),
    }
    write(at.out / "before.jsonl", row | {"variant": ""}, row | {"variant": "before", "errors": {"0": "..."}})
    assert steps.before(at).items == [item]
    write(at.out / "before.jsonl", row | {"variant": ""}, row | {"variant": "before"})
    assert not steps.before(at).items


def test_each_kernel_is_compared_with_the_very_text_that_was_judged(
    owed: Any, steps: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two commits the verdict is of the later one's text, and was reached before that commit."""
    repository, at = tmp_path / "repository", place(steps, tmp_path)
    name, later = "01_allreduce_cuda.py", "2026-01-02T00:00:00+00:00"
    (repository / "solutions").mkdir(parents=True)
    monkeypatch.setattr(owed, "ROOT", repository)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "a")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@b.c")
        monkeypatch.setenv(f"GIT_{role}_DATE", later)
    owed.git("init", "-q")
    for text in ("first", "second"):
        (repository / "solutions" / name).write_text(text)
        owed.git("add", ".")
        owed.git("commit", "-qm", text)
    monkeypatch.setattr(owed, "ARCHIVED", ("solutions",))
    then = {"candidate": {"file": name, "sha256": hashlib.sha256(b"first").hexdigest()}, "started_at": "2100"}
    gone = {"candidate": {"file": name, "sha256": "of no commit"}, "started_at": "2100"}
    monkeypatch.setattr(owed, "slower", lambda _: {1: then, 2: gone})
    monkeypatch.setattr(steps, "slower", lambda _: {steps.Case(1, "paper", 4): then, steps.Case(1, "real", 8): gone})
    for _ in range(2):
        owed.prepare(at)
        (archive,) = at.out.glob(steps.BEFORE)
        found = steps.before(at)
        assert found.items == ["01 paper 4", "01 real 8"]
        (command,) = found.commands
        assert str(archive) in command.words
        assert command.words[command.words.index("--sizes") + 1] == "paper"


def test_a_function_that_failed_is_owed_and_hides_no_time(steps: Any, owed: Any, tmp_path: Path) -> None:
    at = place(steps, tmp_path)
    for folder in (at.records, at.out):
        (folder / "references").mkdir()
    kept, came = (folder / "references" / "references.jsonl" for folder in (at.records, at.out))
    row = {
        "id": 1,
        "size": "paper",
        "ranks": 8,
        "function": "reference",
        "argument_bytes": 0,
        "time_us": 5.0,
        "error": "",
    }
    failed = row | {"time_us": None, "error": "OutOfMemoryError"}
    item = "reference 01 paper"
    write(came, failed)
    found = steps.functions(at)
    assert item in found.items
    assert "--retry" in found.commands[0].words
    write(came, failed | {"error": "unsupported: does not fit"})
    assert item not in steps.functions(at).items
    write(kept, row)
    write(came, failed)
    assert item not in steps.functions(at).items
    owed.append(came, kept)
    (now,) = steps.references.read(kept).values()
    assert now["time_us"] == 5.0, "a try that failed later"


def test_a_showcase_without_a_verdict_is_owed(steps: Any, tmp_path: Path) -> None:
    at = place(steps, tmp_path)
    label, size = next(iter(steps.showcase.POINTS[82].items()))
    kernel = next((ROOT / "solutions").glob("82_*.py"))
    key = steps.showcase.key_of(get(82), label, size, 8, at.platform, f"{read(kernel).sha256} {fingerprint()}")
    for verdict, owed in (("harness_error", True), ("correct", False)):
        row = {"key": key, "label": label, "verdict": {"verdict": verdict}}
        write(at.records / "showcase-82.jsonl", row)
        assert (f"82: {label}" in steps.showcases(at).items) is owed


def test_alternatives_run_with_as_many_ranks_as_fit(steps: Any, tmp_path: Path) -> None:
    (command,) = steps.alternatives(place(steps, tmp_path)).commands
    assert "--alternatives" in command.words
    assert "--cases" not in command.words


def test_a_command_is_interrupted_at_the_end_and_what_it_wrote_stays(owed: Any, tmp_path: Path) -> None:
    path = tmp_path / "limit"
    text = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(sys.argv[2]); time.sleep(600)"
    status = owed.run([sys.executable, "-c", text, str(path), owed.LEFT], owed.LAST_S / 5)
    assert status != 0
    assert path.read_text() == "0", "nothing is begun so late"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_all_and_what_was_measured_is_packed(tmp_path: Path, number: int) -> None:
    """In a process of its own, since it is a process that is interrupted; in the background of a shell, which ignores one of
    these."""
    child = "import sys, time; open(sys.argv[1], 'w').close(); print('begun', flush=True); time.sleep(60)"
    text = f"""
import sys
sys.path.insert(0, {str(BENCHMARKS)!r})
import owed, owed_steps
row = {str(tmp_path / "out" / "row.jsonl")!r}
command = owed_steps.Command([sys.executable, "-c", "{child}", row], lambda status: print("after", status, flush=True))
one = owed_steps.Owed("page", ["item"], [command], None)
owed.STEPS = dict.fromkeys(["first", "second"], lambda at: one)
sys.argv = ["owed.py", "--platform", "cpu", "--budget", "300", "--only", "first,second",
            "--out", {str(tmp_path / "out")!r}, "--archive", {str(tmp_path / "missing" / "a.tar.gz")!r}]
sys.exit(owed.main())
"""
    ignoring = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, preexec_fn=ignoring
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("== first")
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.splitlines() == ["after 2", "interrupted; the same command goes on"]
    with tarfile.open(tmp_path / "missing" / "a.tar.gz") as tar:
        assert "row.jsonl" in tar.getnames()


def test_records_are_packed_while_a_command_is_at_work(
    owed: Any, steps: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is killed with the machine has lost a minute, and another machine goes on from what was packed."""
    at, archive, unpacked = place(steps, tmp_path), tmp_path / "a.tar.gz", tmp_path / "unpacked"
    text = """
import pathlib, sys, tarfile, time
out, archive = map(pathlib.Path, sys.argv[1:])
(out / "frontier").mkdir()
for name in ("row.jsonl", "frontier/cost.json"):
    (out / name).write_text("{}")
while "row.jsonl" not in tarfile.open(archive).getnames():
    time.sleep(0.01)
"""
    command = steps.Command([sys.executable, "-c", text, str(at.out), str(archive)])
    done = iter([steps.Owed("page", ["item"], [command], None), steps.Owed("page", [], [], None)])
    monkeypatch.setattr(owed, "STEPS", {"one": lambda at: next(done)})
    monkeypatch.setattr(owed, "PACK_S", 0.05)
    assert owed.work(at, ["one"], 100.0, archive)
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    there = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert there == {owed.PLATFORM, "row.jsonl", "frontier/cost.json"}


def test_a_full_disk_ends_no_measurement(
    owed: Any, steps: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at, archive, packed = place(steps, tmp_path), tmp_path / "a.tar.gz", owed.pack
    command = steps.Command([sys.executable, "-c", "import time; time.sleep(0.3)"])
    done = iter([steps.Owed("page", ["item"], [command], None), steps.Owed("page", [], [], None)])
    monkeypatch.setattr(owed, "STEPS", {"one": lambda at: next(done)})
    monkeypatch.setattr(owed, "PACK_S", 0.05)
    monkeypatch.setattr(owed, "pack", lambda at, archive: full() if archive.exists() else packed(at, archive))

    def full() -> None:
        raise OSError(28, "No space left on device")

    assert owed.work(at, ["one"], 100.0, archive)
    assert "the archive is not up to date: [Errno 28]" in capsys.readouterr().out


def test_what_fails_while_a_command_runs_leaves_none_behind(owed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    monkeypatch.setattr(owed, "PACK_S", 0.05)
    monkeypatch.setattr(owed, "end", lambda process, end=owed.end: ended.append(end(process)))
    with pytest.raises(StopIteration):
        owed.run([sys.executable, "-c", "import time; time.sleep(60)"], 30.0, iter([]).__next__)
    assert len(ended) == 1


def test_a_folder_is_of_one_platform_and_pages_of_theirs(owed: Any, steps: Any, tmp_path: Path) -> None:
    on_cpu, on_gpu = (place(steps, tmp_path, platform=name) for name in ("cpu", "virtual"))
    owed.work(on_cpu, [], 0.0, None)
    with pytest.raises(SystemExit, match="platform cpu"):
        owed.work(on_gpu, [], 0.0, None)
    owed.pack(on_cpu, tmp_path / "came.tar.gz")
    for source in (on_cpu.out, tmp_path / "came.tar.gz"):
        with pytest.raises(SystemExit, match="platform cpu"):
            owed.merge(source)


def test_what_came_back_is_added_once_and_without_samples(owed: Any, tmp_path: Path) -> None:
    came, kept = tmp_path / "again-1.jsonl", tmp_path / "kept.jsonl"
    write(came, {"timing": {"speedup": 2.0, "candidate_samples_us": [1.0]}}, {"timing": None})
    for _ in range(2):
        owed.append(came, kept)
        rows = [json.loads(line) for line in kept.read_text().splitlines()]
        assert rows == [{"timing": {"speedup": 2.0}}, {"timing": None}]
    owed.append(tmp_path / "missing.jsonl", kept)
    assert len(kept.read_text().splitlines()) == 2
