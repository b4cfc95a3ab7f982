"""Import, export and `pkb runs` as a user meets them."""

import io
import json
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from verdict_examples import example

from pkb.cli.main import app
from pkb.cli.runs import age_words
from pkb.cli.runs_show import is_asked_for
from pkb.store import Reader, Run, Store, TaskSpec, Worker
from pkb.store.exporting import write_jsonl, write_parquet
from pkb.store.importing import read_name
from pkb.types.case import Case
from pkb.types.errors import UserError
from pkb.types.verdict import Evaluation, ProblemRef, Verdict

RUNNER = CliRunner()
PROBLEMS = {"allreduce": 1, "allgather": 2, "allgather_gemm_AT": 11, "allgather_gemm": 12, "gemm_allreduce": 13}
SPEC = TaskSpec(collection="mine", case=Case("13_gemm_allreduce", platform="virtual"), backend="cuda")
VERDICTS = (Verdict.CORRECT, Verdict.WRONG, Verdict.RACE, Verdict.REJECTED, Verdict.CRASH)


def kept(verdict: Verdict) -> Evaluation:
    return example(verdict, problem=ProblemRef(13, "gemm_allreduce"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def run(root: Path) -> Run:
    """One evaluation a verdict, and one task that still waits."""
    specs = [replace(SPEC, sample=number) for number in range(len(VERDICTS))]
    waiting = replace(SPEC, case=replace(SPEC.case, problem="02_allgather"))
    with Store(root) as store:
        run = store.create_run("sweep", name="night", config={"plan": "standard"}, tasks=[*specs, waiting])
        for spec, verdict in zip(specs, VERDICTS, strict=True):
            store.record_evaluation(run.id, spec.key, kept(verdict))
    return run


def invoke(root: Path, *arguments: str, status: int = 0) -> str:
    result = RUNNER.invoke(app, ["runs", *arguments, "--store", str(root)])
    assert result.exit_code == status, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("stem", "stem_found", "backend", "disagrees"),
    [
        ("13_gemm_allreduce_cuda", "13_gemm_allreduce", "cuda", False),
        ("7_gemm_allreduce_triton", "13_gemm_allreduce", "triton", True),
        ("2_allreduce_cuda", "01_allreduce", "cuda", True),  # 2 is a problem too: still the name wins
        ("p01_allreduce_torch", "01_allreduce", "torch", False),
        ("12_allgather_gemm_cuda", "12_allgather_gemm", "cuda", False),
        ("11_allgather_gemm_AT_cuda", "11_allgather_gemm_AT", "cuda", False),
        ("11_allgather_gemm_at_CUDA", "11_allgather_gemm_AT", "cuda", False),
        ("gemm_allreduce_cuda", "13_gemm_allreduce", "cuda", False),
        ("01_allreduce_nvshmem_triton", "01_allreduce", "nvshmem_triton", False),
    ],
)
def test_a_name_says_problem_and_backend(stem: str, stem_found: str, backend: str, disagrees: bool) -> None:
    named = read_name(stem, problems=PROBLEMS)
    assert (named.stem, named.backend) == (stem_found, backend)
    assert (named.said_number not in (None, named.problem_id)) == disagrees


@pytest.mark.parametrize(
    ("stem", "why"),
    [
        ("12_allgather_gemm", "gives no backend"),  # not problem 2 with the backend `gemm`
        ("2_allgather_foo_cuda", "no problem is called 'allgather_foo'"),
        ("13_cuda", "no problem is called 'cuda'"),
        ("13_gemm_allreduce_v2", "'v2' is no backend"),
        ("13", "no problem"),
        ("helper", "no problem"),
    ],
)
def test_a_name_that_is_not_understood_is_refused(stem: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        read_name(stem, problems=PROBLEMS)


def test_a_default_backend_and_a_new_word() -> None:
    assert read_name("12_allgather_gemm", problems=PROBLEMS, default="cuda").backend == "cuda"
    assert read_name("13_gemm_allreduce_v2", problems=PROBLEMS, default="v2").backend == "v2"


def _candidates(folder: Path) -> None:
    (folder / "claude").mkdir(parents=True)
    (folder / "__pycache__").mkdir()
    text = "def solution(A_local, B_local):\n    return A_local\n"
    for name in (
        "13_gemm_allreduce_cuda.py", "07_gemm_allreduce_cuda.py", "claude/13_gemm_allreduce_cuda.py",
        "claude/99_moe_dispatch_cuda.py", "1_allreduce_triton.py", "README.md", "__pycache__/13_gemm_allreduce_cuda.py",
    ):  # fmt: skip
        (folder / name).write_text(text + f"# {Path(name).name}\n")
    (folder / "2_allgather_cuda.py").write_bytes(b"\xff\xfe not text")


def test_import_keeps_all_it_can_and_names_the_rest(tmp_path: Path, root: Path) -> None:
    folder = tmp_path / "kernels"
    _candidates(folder)
    report = json.loads(invoke(root, "import", str(folder), "--json", "--plan", "quick", status=1))
    assert dict(report["refused"]).keys() == {"claude/99_moe_dispatch_cuda.py", "2_allgather_cuda.py"}
    assert report["renumbered"] == [["07_gemm_allreduce_cuda.py", "13_gemm_allreduce"]]
    assert report["resampled"] == [["13_gemm_allreduce_cuda.py", 1]]
    assert report["ignored"] == ["README.md"]
    with Reader(root) as reader:
        run = reader.run("latest")
        assert (run.id, run.kind, run.state, run.name) == (report["run"]["id"], "import", "open", "kernels")
        found = {(t.collection, t.problem, t.backend, t.sample): t for t in reader.tasks(run.id)}
        assert set(found) == {
            ("kernels", "13_gemm_allreduce", "cuda", 0), ("kernels", "13_gemm_allreduce", "cuda", 1),
            ("kernels", "01_allreduce", "triton", 0), ("claude", "13_gemm_allreduce", "cuda", 0),
        }  # fmt: skip
        for task in found.values():
            assert (task.state, task.case.plan, task.case.platform) == ("waiting", "quick", "auto")
        sha = found["claude", "13_gemm_allreduce", "cuda", 0].candidate_sha
        assert sha is not None
        assert reader.objects.get(sha) == (folder / "claude/13_gemm_allreduce_cuda.py").read_bytes()
    text = invoke(root, "import", str(folder), status=1)
    assert "1 files have another problem's number; by name: 07_gemm_allreduce_cuda.py is 13_gemm_allreduce" in text
    assert "claude/99_moe_dispatch_cuda.py: refused: no problem is called 'moe_dispatch'" in text
    shutil.rmtree(folder)
    folder.mkdir()
    for name in ("one.py", "two.py"):
        (folder / name).touch()
    refused = RUNNER.invoke(app, ["runs", "import", str(folder), "--store", str(root)])
    assert refused.exit_code == 2
    assert "one.py: no problem" in refused.stderr
    assert "two.py: no problem" in refused.stderr
    with Reader(root) as reader:
        assert len(reader.runs()) == 2  # nothing to import makes no run


def test_jsonl_holds_whole_verdicts(root: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    invoke(root, "export", "latest", "--out", str(out), "--sources")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["evaluation"] for line in lines] == [json.loads(kept(v).to_json()) for v in VERDICTS]
    assert {line["run"]["id"] for line in lines} == {run.id}
    assert [line["task"]["sample"] for line in lines] == list(range(len(VERDICTS)))
    assert lines[0]["task"]["key"] == SPEC.key
    assert [line["step"] for line in lines] == [0] * len(VERDICTS)
    assert list(tmp_path.glob(".out*")) == []


def test_a_failed_export_leaves_the_old_file(root: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("precious")
    with Reader(root) as reader:
        *_, last = reader.evaluations([run.id])
        reader.objects.path(last.document_sha).unlink()
        with pytest.raises(UserError, match="missing"):
            write_jsonl(reader, [run], out=str(out))
    assert out.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "runs"]


def test_parquet_round_trip(root: Path, run: Run, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "out.parquet"
    with Reader(root) as reader:
        assert write_parquet(reader, [run], out=str(out)) == len(VERDICTS)
        rows = [row.to_dict() for row in reader.evaluations([run.id])]
    table = parquet.read_table(out)
    about_run = {"run_name": "night", "run_kind": "sweep", "run_created_at": run.created_at}
    assert table.to_pylist() == [{name: (about_run | row)[name] for name in table.column_names} for row in rows]
    assert set(table.column_names) == set(about_run | rows[0])  # nothing of a row is left out
    assert str(table.schema.field("race_kind").type) == "string"
    assert str(table.schema.field("tokens_in").type) == "int64"  # typed though all of them are null


def test_the_list_counts_and_puts_the_newest_first(root: Path, run: Run) -> None:
    with Store(root) as store:
        newer = store.create_run("agent", name="day", tasks=[SPEC])
        store.claim(newer.id, replace(Worker.here(), pid=2**22 + 1))  # no such process
    listed = json.loads(invoke(root, "--json"))
    assert [entry["id"] for entry in listed] == [newer.id, run.id]
    assert [entry["state"] for entry in listed] == ["interrupted", "open"]
    assert listed[1]["tasks"] == {"done": 5, "waiting": 1}
    assert listed[1]["verdicts"] == {v.value: 1 for v in VERDICTS}
    text = invoke(root)
    (line,) = [line for line in text.splitlines() if run.id in line]
    for fact in ("night", "sweep", "open", "5/6", "1 correct", "virtual", "NVIDIA H200"):
        assert fact in line


def test_show_has_a_row_for_each_task_and_evaluation(root: Path, run: Run) -> None:
    text = invoke(root, "show", "latest")
    rows = [line for line in text.splitlines() if "_all" in line]
    assert len(rows) == 6
    assert "1.71x (1.67-1.76) faster" in text
    assert text.count("faster") == 1  # the rejected one's times are not shown
    assert "say nothing about NVLink" in text
    document = json.loads(invoke(root, "show", run.id[:-1], "--problem", "2", "--json"))
    assert [task["problem"] for task in document["task_rows"]] == ["02_allgather"]
    assert document["evaluations"] == []
    assert RUNNER.invoke(app, ["runs", "show", "latest", "--problem", "50", "--store", str(root)]).exit_code == 2


def test_the_store_may_be_named_before_the_word(root: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert RUNNER.invoke(app, ["runs", "--store", str(root), "show", "latest"]).exit_code == 0
    monkeypatch.setenv("PKB_STORE", str(root))
    assert run.id in RUNNER.invoke(app, ["runs"]).stdout
    monkeypatch.setenv("PKB_STORE", str(root / "nowhere"))
    refused = RUNNER.invoke(app, ["runs"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "PKB_STORE" in refused.stderr


def test_check_names_what_a_loss_belongs_to(root: Path, run: Run) -> None:
    assert "all there and unharmed" in invoke(root, "check")
    with Reader(root) as reader:
        first = next(reader.evaluations([run.id]))
        path = reader.objects.path(first.document_sha)
    path.write_bytes(path.read_bytes()[::-1])
    text = invoke(root, "check", status=1)
    assert f"evaluation {first.task_key} step 0 of run {run.id}" in text
    report = json.loads(invoke(root, "check", "--json", status=1))
    assert [lost["sha"] for lost in report["lost"]] == [first.document_sha]


def test_delete_asks_first(root: Path, run: Run) -> None:
    refused = RUNNER.invoke(app, ["runs", "delete", "latest", "--store", str(root)])
    assert refused.exit_code == 2
    assert "5 evaluations" in refused.stderr
    assert json.loads(invoke(root, "--json"))
    assert "5 files removed" in invoke(root, "delete", "latest", "--yes")
    assert json.loads(invoke(root, "--json")) == []
    assert not any(path.is_file() for path in (root / "objects").rglob("*"))


@pytest.mark.parametrize(
    ("wanted", "is_in"),
    [(None, True), ("13", True), ("1-12", False), ("1-8,13", True), ("gemm_allreduce", True), ("3", False),
     ("013", True), ("gemm", False)],
)  # fmt: skip
def test_problems_are_chosen_by_id_name_and_range(wanted: str | None, is_in: bool) -> None:
    assert is_asked_for("13_gemm_allreduce", wanted) == is_in


def test_ages() -> None:
    now = datetime(2026, 11, 15, 12, tzinfo=UTC)
    times = {"2026-11-15T11:59:30.5Z": "30 s", "2026-11-15T11:30:00Z": "30 min", "2026-11-13T12:00:00Z": "2 d"}
    assert {created: age_words(created, now=now) for created in times} == times


def test_importing_the_store_stays_light() -> None:
    code = "import sys, pkb.store, pkb.cli.runs; print([m for m in ('torch', 'pyarrow', 'rich.table') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_export_to_standard_output(root: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, write_through=True))
    with Reader(root) as reader:
        assert write_jsonl(reader, [run], out="-") == len(VERDICTS)
        with pytest.raises(UserError, match="standard output"):
            write_parquet(reader, [run], out="-")
    lines: list[dict[str, Any]] = [json.loads(line) for line in raw.getvalue().splitlines()]
    assert lines[0]["run"] == asdict(run)


def test_an_answer_without_a_candidate_is_exported_and_scored(tmp_path: Path) -> None:
    """Left out, it would count as never asked, and every score would be too good."""
    root, out = tmp_path / "runs", tmp_path / "out.jsonl"
    with Store(root) as store:
        run = store.create_run("generate", name="silent", tasks=[SPEC, replace(SPEC, sample=1)])
        worker = Worker.here()
        task = store.claim(run.id, worker)
        assert task is not None
        store.record_step(run.id, task.key, step=0, transcript={"said": "no code today"}, stop_reason="stop")
        store.finish(task, worker)
    invoke(root, "export", "latest", "--out", str(out))
    (line,) = [json.loads(line) for line in out.read_text().splitlines()]  # the other task is still waiting
    assert line["evaluation"] is None
    assert line["answer"]["stop_reason"] == "stop"
    scored = CliRunner().invoke(app, ["score", run.id[:12], "--store", str(root), "--json"])
    assert scored.exit_code == 0, scored.output
    (collection,) = json.loads(scored.stdout)["collections"]
    assert (collection["samples"], collection["judged_problems"]) == (1, 1)
    assert collection["failure_modes"]["no_answer"] == 1
    assert collection["pass_at"]["1"]["value"] == 0
