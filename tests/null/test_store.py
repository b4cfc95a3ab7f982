"""The store as its callers use it: exactly once, secrets refused, damage found, old and new schemas."""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from verdict_examples import TIMING, example

from pkb.store import CandidateFile, ObjectLost, Reader, Run, Store, TaskSpec, Worker, root_folder, schema
from pkb.store.check import check
from pkb.store.objects import sha_of
from pkb.store.secret_check import refuse_secrets, remove_secrets
from pkb.types.case import Case
from pkb.types.errors import UserError
from pkb.types.verdict import CandidateRef, Evaluation, ProblemRef, Verdict

SPEC = TaskSpec(
    collection="openai/gpt", case=Case("13_gemm_allreduce", platform="virtual", size="paper"), backend="cuda"
)
SOURCE = b"def solution(A_local, B_local):\n    return A_local @ B_local  # \xc3\xa4\n"
FILE = CandidateFile(source=SOURCE, filename="13_gemm_allreduce_cuda.py", origin="openai/gpt sample 0")
PROBLEM = ProblemRef(13, "gemm_allreduce")


def judged(verdict: Verdict, **changes: Any) -> Evaluation:
    return example(verdict, problem=PROBLEM, candidate=CandidateRef(FILE.filename, sha_of(SOURCE), "cuda"), **changes)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


@pytest.fixture
def run(store: Store) -> Run:
    return store.create_run("sweep", name="first", config={"ranks": 4}, tasks=[SPEC], candidates={SPEC.key: FILE})


def test_a_verdict_comes_back_as_it_was_given(store: Store, run: Run) -> None:
    evaluation = judged(Verdict.CORRECT)
    assert store.record_evaluation(run.id, SPEC.key, evaluation)
    with Reader(store.root) as reader:
        (row,) = reader.evaluations([run.id])
        assert reader.document(row.document_sha) == json.loads(evaluation.to_json())
        assert row.candidate_sha == sha_of(SOURCE)  # the same hash that the judge takes of the file
        assert reader.source(row.candidate_sha) == SOURCE.decode()
        assert (row.verdict, row.decision, row.speedup, row.speedup_low) == (
            "correct", "faster", TIMING.speedup, TIMING.speedup_low,
        )  # fmt: skip
        assert (row.collection, row.problem_id, row.case.platform, row.hardware) == (
            "openai/gpt", 13, "virtual", "NVIDIA H200",
        )  # fmt: skip
        assert row.paths == evaluation.paths
        assert reader.task(run.id, SPEC.key).state == "done"
        (candidate,) = reader.candidates(run.id)
        assert (candidate.filename, candidate.origin, candidate.problem_id) == (FILE.filename, FILE.origin, 13)


def test_a_time_of_a_cpu_is_in_no_table(store: Store, run: Run) -> None:
    """Whatever the document says: score, panel and site read these columns."""
    assert store.record_evaluation(run.id, SPEC.key, replace(judged(Verdict.CORRECT), platform="cpu", timing=TIMING))
    with Reader(store.root) as reader:
        (row,) = reader.evaluations([run.id])
        assert reader.document(row.document_sha)["timing"]["decision"] == "faster"
        assert (row.verdict, row.decision, row.speedup, row.candidate_us) == ("correct", None, None, None)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_can_be_kept_and_only_a_correct_one_has_times(store: Store, run: Run, verdict: Verdict) -> None:
    evaluation = judged(verdict)
    assert store.record_evaluation(run.id, SPEC.key, evaluation)
    (row,) = store.evaluations([run.id])
    assert row.verdict == verdict
    assert (row.speedup is not None) == (verdict is Verdict.CORRECT)  # a rejected candidate's times are not believed
    assert row.failure_kind == (evaluation.failure.name or evaluation.failure.kind if evaluation.failure else None)
    assert row.race_kind == evaluation.race_kind


def test_the_first_verdict_stays(store: Store, run: Run) -> None:
    assert store.record_evaluation(run.id, SPEC.key, judged(Verdict.CORRECT))
    assert not store.record_evaluation(run.id, SPEC.key, judged(Verdict.WRONG))
    assert [row.verdict for row in store.evaluations([run.id])] == ["correct"]
    assert store.record_evaluation(run.id, SPEC.key, judged(Verdict.WRONG), step=1)  # another step is another verdict
    assert [(row.step, row.verdict) for row in store.evaluations([run.id])] == [(0, "correct"), (1, "wrong")]


def test_a_verdict_of_something_else_is_refused(store: Store, run: Run) -> None:
    with pytest.raises(ValueError, match="about problem 14"):
        store.record_evaluation(run.id, SPEC.key, replace(judged(Verdict.WRONG), problem=ProblemRef(14, "x")))
    with pytest.raises(ValueError, match=f"about the file {example(Verdict.WRONG).candidate.sha256[:12]}"):
        store.record_evaluation(run.id, SPEC.key, example(Verdict.WRONG, problem=PROBLEM))
    with pytest.raises(UserError, match="no task"):
        store.record_evaluation(run.id, "nothing", judged(Verdict.WRONG))
    assert list(store.evaluations([run.id])) == []
    assert store.task(run.id, SPEC.key).state == "waiting"


def test_pages_of_evaluations_are_whole_and_in_order(store: Store) -> None:
    specs = [replace(SPEC, sample=number) for number in range(1203)]  # more than two pages
    other = store.create_run("sweep", tasks=specs)
    store.record_evaluation(other.id, specs[0].key, judged(Verdict.WRONG))
    with store.transaction() as connection:  # filled by hand: a thousand fsyncs would only slow the test
        connection.executemany(
            "INSERT INTO evaluations SELECT run_id, ?, step, verdict, stage, detail, decision, speedup, speedup_low,"
            " speedup_high, reference_us, candidate_us, floor_us, communication, paths, race_kind, failure_kind,"
            " failure_message, platform, hardware, ranks, size, dtype, plan, document_sha, candidate_sha, created_at"
            " FROM evaluations WHERE task_key = ?",
            [(spec.key, specs[0].key) for spec in specs[1:]],
        )
    assert [row.sample for row in store.evaluations([other.id])] == list(range(1203))


def test_steps_keep_what_was_said_once(store: Store) -> None:
    run = store.create_run("agent", tasks=[SPEC])
    said = [{"role": "assistant", "content": "here it is"}]
    again: dict[str, Any]
    again = {"step": 0, "transcript": said, "candidate": FILE, "tokens_in": 10, "tokens_out": 20, "cost_usd": 0.5,
             "seconds": 3.0, "stop_reason": "stop"}  # fmt: skip
    assert store.record_step(run.id, SPEC.key, **again)
    assert not store.record_step(run.id, SPEC.key, **(again | {"transcript": ["other"]}))
    assert store.record_step(run.id, SPEC.key, step=1, transcript=["no code"], error="no candidate in it")
    assert store.record_evaluation(run.id, SPEC.key, judged(Verdict.CORRECT), step=0, done=False)
    assert store.task(run.id, SPEC.key).state == "waiting"
    first, second = store.steps(run.id, SPEC.key)
    assert store.transcript(first.transcript_sha) == said
    assert (first.candidate_sha, second.candidate_sha) == (sha_of(SOURCE), None)
    (row,) = store.evaluations([run.id])
    assert (row.candidate_sha, row.tokens_in, row.tokens_out, row.cost_usd) == (sha_of(SOURCE), 10, 20, 0.5)


def test_a_task_is_added_once_and_differs_by_every_field(store: Store) -> None:
    cases: list[dict[str, Any]] = [
        {"problem": "14_gemm_allgather"}, {"platform": "cpu"}, {"ranks": 2}, {"size": "tiny"}, {"dtype": "fp32"},
        {"plan": "quick"},
    ]  # fmt: skip
    others = [replace(SPEC, case=replace(SPEC.case, **change)) for change in cases]
    others += [replace(SPEC, backend="triton"), replace(SPEC, sample=1), replace(SPEC, collection="openai")]
    others += [replace(SPEC, collection="openai/gpt/13_gemm_allreduce")]
    run = store.create_run("sweep", tasks=[SPEC, *others, SPEC, *others])
    assert [task.key for task in store.tasks(run.id)] == [SPEC.key, *(other.key for other in others)]


def test_claims_follow_the_order(store: Store) -> None:
    specs = [
        replace(SPEC, case=Case("01_allreduce", "node", 8, "paper"), backend="triton"),
        replace(SPEC, case=replace(SPEC.case, problem="02_allgather", ranks=2)),
        replace(SPEC, case=replace(SPEC.case, problem="03_broadcast")),
    ]
    run, me = store.create_run("sweep", tasks=specs), Worker.here()
    picked = [store.claim(run.id, me) for _ in range(4)]
    assert [task.problem_id if task else None for task in picked] == [1, 2, 3, None]


def test_a_lease_is_renewed_given_back_and_lost(store: Store, run: Run) -> None:
    me = Worker.here()
    far = Worker("another-machine", 1, 0.0)  # cannot be looked at from here: only its lease tells
    task = store.claim(run.id, far, lease_s=0.05)
    assert task is not None
    assert not store.renew(task, me)
    assert not store.release(task, me)
    assert store.renew(task, far, lease_s=0.2)
    assert store.reclaim_dead(run.id) == []
    time.sleep(0.25)
    assert [found.key for found in store.reclaim_dead(run.id)] == [SPEC.key]
    assert not store.renew(task, far)  # too late: it is nobody's now
    mine = store.claim(run.id, me)
    assert mine is not None
    assert store.release(mine, me)
    assert store.task(run.id, SPEC.key).attempts == 1  # giving back costs nothing
    again = store.claim(run.id, me)
    assert again is not None
    assert store.fail(again, me, error="the model is gone")
    assert (store.task(run.id, SPEC.key).state, store.task(run.id, SPEC.key).error) == ("failed", "the model is gone")
    assert store.retry_failed(run.id) == 1
    assert store.claim(run.id, me) is not None


def test_a_task_that_kills_its_workers_fails(store: Store, run: Run) -> None:
    here = Worker.here()
    gone = Worker(here.host, here.pid, here.started - 100)  # our process id, but another process had it
    for _ in range(2):
        assert store.claim(run.id, gone) is not None
        assert len(store.reclaim_dead(run.id)) == 1
    assert store.claim(run.id, gone) is not None
    assert store.summary(run).shown_state == "interrupted"
    assert store.reclaim_dead(run.id) == []
    assert store.task(run.id, SPEC.key).state == "failed"
    assert "3 times" in store.task(run.id, SPEC.key).error


def test_complete_means_nothing_is_left(store: Store, run: Run) -> None:
    with pytest.raises(UserError, match="1 tasks left"):
        store.set_run_state(run.id, "complete")
    store.record_evaluation(run.id, SPEC.key, judged(Verdict.CORRECT))
    store.set_run_state(run.id, "complete")
    assert store.run(run.id).state == "complete"


def test_runs_are_named_by_prefix_name_and_latest(store: Store, run: Run) -> None:
    second = store.create_run("import", name="second")
    assert [found.id for found in store.runs()] == [second.id, run.id]
    assert store.run("latest").id == second.id
    assert store.run("first").id == store.run(run.id).id == run.id
    assert store.run(run.id).config == {"ranks": 4}
    common = run.id[:2]
    with pytest.raises(UserError, match="could mean 2 runs"):
        store.run(common)
    length = next(n for n in range(1, 60) if run.id[:n] != second.id[:n])
    assert store.run(run.id[:length]).id == run.id
    with pytest.raises(UserError, match="no run is called"):
        store.run("nope")
    with pytest.raises(UserError, match="no run"):
        store.run("")


@pytest.mark.parametrize(
    "config",
    [
        {"model": {"api_key": "x"}},
        {"OPENAI_API_KEY": "x"},
        {"headers": [{"Authorization": "x"}]},
        {"hf_token": "x"},
        {"arguments": ["--key", "sk-proj-abcDEF0123456789abcdef"]},
        {"url": "https://host/?k=ghp_0123456789abcdefghijABCDEFGHIJ0123"},
        {"note": "it is hunter2-hunter2, really"},
    ],
)
def test_secrets_are_refused_and_not_repeated(
    store: Store, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hunter2-hunter2")
    with pytest.raises(UserError, match=r"config\.") as caught:
        store.create_run("generate", config=config)
    for secret in ("sk-proj", "ghp_", "hunter2"):
        assert secret not in str(caught.value)
    assert store.runs() == []


def test_what_only_sounds_like_a_secret_is_kept(store: Store) -> None:
    config = {
        "max_tokens": 100, "tokens": "many", "api_key_env": "OPENAI_API_KEY", "api_key": "", "stop_token": "<eos>",
        "task": "sk-learn", "sha": "0" * 64,
    }  # fmt: skip
    refuse_secrets(config)
    assert store.create_run("generate", config=config).config == config


def test_keys_are_taken_out_of_transcripts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", 'quo"ted-value')
    run = store.create_run("generate", tasks=[SPEC])
    store.record_step(run.id, SPEC.key, step=0, transcript={"text": 'I saw quo"ted-value.', "n": 3})
    (step,) = store.steps(run.id, SPEC.key)
    assert store.transcript(step.transcript_sha) == {"text": "I saw [secret removed].", "n": 3}
    assert remove_secrets(["hf_model_name_or_path_of_something"]) == ["hf_model_name_or_path_of_something"]


def test_equal_content_is_kept_once_and_damage_is_found_and_repaired(store: Store) -> None:
    other = replace(SPEC, sample=1)
    files = {SPEC.key: FILE, other.key: replace(FILE, origin="another")}
    store.create_run("sweep", tasks=[SPEC, other], candidates=files)
    assert len(list(store.objects.names())) == 1
    assert check(store).clean
    path = store.objects.path(sha_of(SOURCE))
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    findings = check(store)
    (lost,) = findings.lost
    assert not findings.clean
    assert lost.what.startswith("damaged")
    assert {owner.split(" of run")[0] for owner in lost.belongs_to} >= {f"task {SPEC.key}", f"task {other.key}"}
    with pytest.raises(ObjectLost, match="damaged"):
        store.source(sha_of(SOURCE))
    path.unlink()
    assert check(store).lost[0].what == "missing"
    store.objects.put(SOURCE)
    assert check(store).clean
    path.write_bytes(b"")
    store.objects.put(SOURCE)
    assert check(store).clean


@pytest.mark.parametrize("when", ["while files are listed", "before they are removed"])
def test_collecting_keeps_nobody_waiting_and_takes_nothing_that_is_wanted_meanwhile(
    store: Store, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process writes in the middle of it, and refers to what nothing referred to when it began."""
    store.objects.put(b"nobody needs this")
    wanted = store.objects.put(SOURCE)

    def write() -> None:
        with Store(store.root) as other:
            other.create_run("sweep", tasks=[SPEC], candidates={SPEC.key: FILE})

    names, transaction = store.objects.names, store.transaction

    def listed() -> Iterator[str]:
        yield from names()
        write()

    def begun() -> AbstractContextManager[sqlite3.Connection]:
        write()
        return transaction()

    if when == "while files are listed":
        monkeypatch.setattr(store.objects, "names", listed)
    else:
        monkeypatch.setattr(store, "transaction", begun)
    assert store.collect_garbage() == 1
    assert store.objects.has(wanted)
    assert check(store).clean


def test_garbage_goes_and_nothing_else(store: Store, run: Run) -> None:
    unused = store.objects.put(b"nobody needs this")
    assert check(store).unused == 1
    assert store.collect_garbage() == 1
    assert not store.objects.has(unused)
    keeper = store.create_run("sweep", tasks=[SPEC], candidates={SPEC.key: FILE})
    store.record_evaluation(run.id, SPEC.key, judged(Verdict.CORRECT))
    store.delete_run(run.id)
    assert store.collect_garbage() == 1  # the verdict; the candidate is the other run's as well
    assert store.source(sha_of(SOURCE)) == SOURCE.decode()
    assert [found.id for found in store.runs()] == [keeper.id]
    assert store.claim(keeper.id, Worker.here()) is not None
    with pytest.raises(UserError, match="being worked on"):
        store.delete_run(keeper.id)


def test_a_newer_store_is_refused(store: Store, run: Run) -> None:
    store.connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(UserError, match="newer pkb"):
        Reader(store.root)
    with pytest.raises(UserError, match="newer pkb"):
        Store(store.root)
    with pytest.raises(UserError, match="newer pkb"):  # also one that was open when it changed
        store.create_run("sweep")


def test_an_older_store_is_migrated(store: Store, run: Run) -> None:
    migrations = (*schema.MIGRATIONS, ("ALTER TABLE runs ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'",))
    with store.transaction() as connection:
        schema.migrate(connection, start=schema.VERSION, migrations=migrations)
    assert store.connection.execute("SELECT id, mood FROM runs").fetchall()[0][1] == "calm"
    assert store.connection.execute("PRAGMA user_version").fetchone()[0] == schema.VERSION + 1


def test_what_is_not_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no runs are stored"):
        Reader(tmp_path)
    (tmp_path / "pkb.db").write_bytes(b"this is text, and long enough to be taken for a page of a database" * 100)
    with pytest.raises(UserError, match="not a store of pkb"):
        Reader(tmp_path)
    (tmp_path / "pkb.db").unlink()
    with sqlite3.connect(tmp_path / "pkb.db") as other:
        other.execute("CREATE TABLE mine (x)")
    with pytest.raises(UserError, match="another program"):
        Store(tmp_path)


def test_a_reader_cannot_write(store: Store, run: Run) -> None:
    with Reader(store.root) as reader, pytest.raises(RuntimeError, match="does not write"), reader.transaction():
        pass
    with Reader(store.root) as reader, pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.connection.execute("DELETE FROM runs")


def test_where_runs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PKB_STORE", raising=False)
    assert root_folder() == Path("pkb-runs")
    monkeypatch.setenv("PKB_STORE", "/somewhere")
    assert root_folder() == Path("/somewhere")
    assert root_folder(Path("given")) == Path("given")
