"""One made run, asked in five ways: `runs`, `runs show`, `score` of the run and of its export, and the report's tables.
All must give the same counts, reasons and costs. And the order of a leaderboard where not everything was measured."""

import csv
import itertools
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from verdict_examples import example

from pkb.analysis.outcomes import run_outcomes
from pkb.analysis.ranking import Place, Shares, places, ranked
from pkb.cli.main import app
from pkb.store import Reader, Run, Store, TaskSpec, Worker
from pkb.types.case import Case
from pkb.types.verdict import ProblemRef, Verdict

MODEL = "openai/some-model"
SPEC = TaskSpec(collection=MODEL, case=Case("13_gemm_allreduce", platform="auto"), backend="cuda")
NO_CODE = "the answer holds no code block"


def of_problem(number: int, name: str, *, sample: int = 0) -> TaskSpec:
    return replace(SPEC, case=replace(SPEC.case, problem=f"{number:02d}_{name}"), sample=sample)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """An agent that looked the problem up, was judged twice and said goodbye; one that gave no kernel; one whose provider
    died after an answer; and one that waits. The platform was left open, as `--no-eval` leaves it."""
    judged, silent = of_problem(13, "gemm_allreduce"), of_problem(1, "allreduce")
    broken, waiting = of_problem(2, "allgather"), of_problem(13, "gemm_allreduce", sample=1)
    with Store(tmp_path / "store") as store:
        made = store.create_run("agent", name="tried", tasks=[judged, silent, broken, waiting])
        worker = Worker.here()
        for spec in (judged, silent, broken):
            task = store.claim(made.id, worker)
            assert task is not None
            assert task.key == spec.key

        def say(spec: TaskSpec, step: int, error: str = "") -> None:
            store.record_step(
                made.id, spec.key, step=step, transcript={"step": step}, tokens_in=1000 + step, tokens_out=10,
                cost_usd=0.01, stop_reason="stop", error=error,
            )  # fmt: skip

        for step in range(4):
            say(judged, step)
        for step, verdict in ((1, Verdict.WRONG), (2, Verdict.CORRECT)):
            said = replace(example(verdict, problem=ProblemRef(13, "gemm_allreduce")), platform="cpu", timing=None)
            store.record_evaluation(made.id, judged.key, said, step=step, done=False)
        store.finish(store.task(made.id, judged.key), worker)
        say(silent, 0, NO_CODE)
        store.finish(store.task(made.id, silent.key), worker)
        say(broken, 0)
        store.fail(store.task(made.id, broken.key), worker, error="the provider is gone")
    return made


def ask(tmp_path: Path, *arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--store", str(tmp_path / "store")])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in arguments else result.stdout


def test_every_command_counts_a_run_alike(tmp_path: Path, run: Run) -> None:
    counted = {"correct": 1, "no_answer": 1, "no_verdict": 1, "waiting": 1}
    (listed,) = ask(tmp_path, "runs", "--json")
    shown = ask(tmp_path, "runs", "show", "tried", "--json")
    scored = ask(tmp_path, "score", "tried", "--json")
    (collection,) = scored["collections"]
    without = scored["without_outcome"][run.id]
    assert listed["outcomes"] == shown["outcomes"] == counted
    assert collection["verdicts"] | without["outcomes"] == counted
    assert {row["outcome"]: row["reason"] for row in shown["task_rows"]} == {
        "correct": shown["evaluations"][-1]["detail"], "no_answer": NO_CODE, "no_verdict": "the provider is gone",
        "waiting": "",
    }  # fmt: skip

    spent = {"answers": 6, "tokens_in": 6006, "tokens_out": 60, "cost_usd": pytest.approx(0.06)}
    assert listed["spent"] == shown["spent"] == spent
    for name in ("tokens_in", "tokens_out", "cost_usd"):
        assert collection[name] + without["spent"][name] == spent[name], name
        assert sum(row[name] or 0 for row in shown["task_rows"]) == spent[name], name

    # The export scores as the run does, and so does the site: the silent task is in the collection's only row.
    out = tmp_path / "out.jsonl"
    ask(tmp_path, "runs", "export", "tried", "--out", str(out))
    (from_file,) = ask(tmp_path, "score", str(out), "--json")["collections"]
    assert from_file == collection
    site = tmp_path / "site"
    ask(tmp_path, "report", "tried", "--out", str(site), "--no-published")
    (row,) = csv.DictReader((site / "csv" / "leaderboard.csv").open())
    assert (float(row["correct"]), int(row["problems"])) == (collection["pass_at"]["1"]["value"], 2)
    assert float(row["correct"]) == 0.5
    assert float(row["cost_usd"]) == pytest.approx(collection["cost_usd"])
    assert float(row["tokens"]) == collection["tokens"] == collection["tokens_in"] + collection["tokens_out"]


def test_the_tables_say_what_the_documents_say(tmp_path: Path, run: Run) -> None:
    listed, shown, scored = ask(tmp_path, "runs"), ask(tmp_path, "runs", "show", run.id), ask(tmp_path, "score", run.id)
    outcomes, spent = "1 correct, 1 no answer, 1 no verdict, 1 waiting", "6006 tokens in, 60 out, 0.0600 USD"
    for text in (listed, shown):
        assert outcomes in text
        assert spent in text
    assert NO_CODE in shown
    assert "the provider is gone" in shown
    assert "1 no verdict, 1 waiting" in scored


def test_an_open_platform_is_that_of_the_others_only_where_they_agree(tmp_path: Path, run: Run) -> None:
    with Reader(tmp_path / "store") as reader:
        cases = {outcome.task.key: outcome.case for outcome in run_outcomes(reader, run)}
    assert {case.platform for case in cases.values()} == {"cpu"}
    with Store(tmp_path / "store") as store:
        said = example(Verdict.WRONG, problem=ProblemRef(13, "gemm_allreduce"))
        waiting = of_problem(13, "gemm_allreduce", sample=1)
        store.record_evaluation(run.id, waiting.key, replace(said, platform="virtual"))
        cases = {outcome.task.key: outcome.case for outcome in run_outcomes(store, run)}
    assert [case.platform for case in cases.values()] == ["cpu", "auto", "auto", "virtual"]


# -- the order of a leaderboard ---------------------------------------------------------------------------------------


def test_what_was_not_measured_is_neither_best_nor_worst() -> None:
    wrong, right = Shares(0.0, 0.0, 0.0), Shares(None, 1.0, 1.0)
    assert places([wrong, right]) == [Place(2, 2), Place(1, 1)]
    timed = [Shares(0.6, 0.8, 0.8), Shares(0.2, 0.8, 0.8)]
    assert places([*timed, right, wrong]) == [Place(1, 2), Place(2, 3), Place(1, 3), Place(4, 4)]
    assert [row for _, row in ranked([wrong, right, *timed], lambda row: row)] == [timed[0], right, timed[1], wrong]
    # Faster on more problems than it solved it cannot have been.
    assert places([Shares(0.6, 0.8, 0.8), Shares(None, 0.5, 0.5)]) == [Place(1, 1), Place(2, 2)]


def test_ties_are_ties_and_nothing_judged_has_no_place() -> None:
    same, untimed = Shares(0.5, 0.5, 0.5), Shares(None, 0.5, 0.7)
    assert places([same, same, Shares(0.1, 0.5, 0.5)]) == [Place(1, 1), Place(1, 1), Place(3, 3)]
    assert places([untimed, untimed]) == [Place(1, 1), Place(1, 1)]
    assert places([Shares(None, 0.2, 0.4), untimed, Shares(None, None, None)]) == [Place(2, 2), Place(1, 1), None]
    rows = [Shares(None, None, None), wrong := Shares(0.0, 0.0, 0.0)]
    assert ranked(rows, lambda row: row)[0] == (Place(1, 1), wrong)


def test_better_is_an_order() -> None:
    """Better than one that is better than a third is better than the third; nobody is better than himself."""
    dice = random.Random(5)
    for _ in range(300):
        rows = []
        for _ in range(4):
            correct = dice.randrange(4) / 3
            custom = min(correct, dice.randrange(4) / 3)
            faster = dice.choice([None, min(correct, dice.randrange(4) / 3)]) if correct else 0.0
            rows.append(Shares(faster, custom, correct))
        better = {
            (one, other)
            for one, other in itertools.permutations(range(4), 2)
            if places([rows[one], rows[other]]) == [Place(1, 1), Place(2, 2)]
        }
        for one, between, other in itertools.permutations(range(4), 3):
            if {(one, between), (between, other)} <= better:
                assert (one, other) in better, rows
        for place in places(rows):
            assert place is not None
            assert 1 <= place.best <= place.worst <= 4
