"""Reading results, the published numbers, and the command."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from verdict_examples import TIMING, example

from pkb.analysis.document import COLUMNS
from pkb.analysis.modes import PUBLISHED, FailureMode
from pkb.analysis.published import Solved, published
from pkb.analysis.results import read_results
from pkb.cli.main import app
from pkb.types.errors import UserError
from pkb.types.taxonomy import PARALLELISM
from pkb.types.verdict import ProblemRef, Verdict


def document(problem: int, verdict: str = "correct") -> dict[str, Any]:
    return json.loads(example(Verdict(verdict), problem=ProblemRef(problem, "x")).to_json())


def write(path: Path, *entries: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [entry if isinstance(entry, str) else json.dumps(entry) for entry in entries]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_nothing_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write(folder / "good.json", document(3))
    write(folder / "broken.json", '{"verdict": ')
    (folder / "binary.json").write_bytes(b"\xff\xfe\x00")
    write(
        folder / "deep" / "lines.jsonl", document(1), "", "{oops", [1], {"verdict": "right"}, {"a": 1},
        document(2) | {"schema": 99}, document(2) | {"problem": {}, "candidate": {"file": "kernel.py"}},
        document(2) | {"timing": {"speedup": 2}},
        document(4, "wrong"), "[" * 100_000,
    )  # fmt: skip
    found = read_results([folder])
    assert sorted(sample.problem for sample in found.samples) == [1, 3, 4]
    places = {entry.where.removeprefix(f"{folder}/"): entry.why for entry in found.unreadable}
    assert set(places) == {"broken.json", "binary.json"} | {f"deep/lines.jsonl:{n}" for n in (3, 4, 5, 6, 7, 8, 9, 11)}
    assert "line" in places["broken.json"]
    assert "'right'" in places["deep/lines.jsonl:5"]
    assert "schema 99" in places["deep/lines.jsonl:7"]
    assert "speedup_low" in places["deep/lines.jsonl:9"]


def test_times_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    for name, value in (
        ("speedup", "2"),
        ("speedup_low", -1),
        ("speedup", True),
        ("speedup_low", 99.0),
        ("decision", "fast"),
    ):
        entry = document(1)
        entry["timing"][name] = value
        found = read_results([write(tmp_path / "x.json", entry)])
        assert not found.samples
        assert name.partition("_")[0] in found.unreadable[0].why


def test_names_of_collections(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a" / "1.json", document(1)), write(tmp_path / "a" / "2.json", document(2))
    lines = write(
        tmp_path / "b.jsonl", document(1), {"collection": "own", "problem": 2, "sample": 0, "evaluation": None}
    )
    assert set(read_results([tmp_path / "a"]).collections()) == {"a"}
    assert {k: len(v) for k, v in read_results([one, two]).collections().items()} == {"a": 2}
    assert set(read_results([lines]).collections()) == {"b", "own"}
    assert {k: len(v) for k, v in read_results([lines, one], labels=["all"]).collections().items()} == {"all": 3}
    assert set(read_results([lines, one], labels=["x", "y"]).collections()) == {"x", "y"}
    with pytest.raises(UserError, match="2 labels for 3"):
        read_results([one, two, lines], labels=["x", "y"])


def test_tries_are_numbered_in_natural_order_and_files_read_once(tmp_path: Path) -> None:
    for number, verdict in ((10, "wrong"), (2, "correct")):
        write(tmp_path / f"try_{number}.json", document(1, verdict))
    found = read_results([tmp_path, tmp_path / "try_2.json"])
    assert [(s.index, s.verdict) for s in sorted(found.samples, key=lambda s: s.index)] == [
        (0, "correct"),
        (1, "wrong"),
    ]


def test_samples_with_their_own_numbers(tmp_path: Path) -> None:
    def entry(index: int, step: int | None, verdict: str | None, **more: Any) -> dict[str, Any]:
        evaluation = None if verdict is None else document(7, verdict)
        return {"problem": 7, "sample": index, "step": step, "evaluation": evaluation, **more}

    path = write(
        tmp_path / "x.jsonl",
        entry(0, 1, "correct", cost_usd=0.5, tokens=10),
        entry(0, 0, "wrong", cost_usd=0.25, tokens=7),
        entry(1, None, None),
        entry(1, None, "correct"),
        entry(2, 0, "correct") | {"problem": 8},
        document(7, "crash"),
        {"problem": 7, "sample": -1, "evaluation": None},
    )
    found = read_results([path])
    by_index = {sample.index: sample for sample in found.samples}
    assert {index: sample.verdict for index, sample in by_index.items()} == {0: "correct", 1: "no_answer", 2: "crash"}
    assert (by_index[0].step, by_index[0].cost_usd, by_index[0].tokens) == (1, 0.75, 17)
    assert by_index[1].mode is FailureMode.NO_ANSWER
    assert found.earlier_steps == 1
    assert [entry.where.rpartition(":")[2] for entry in found.unreadable] == ["5", "7", "4"]


def test_lines_of_an_exported_run(tmp_path: Path) -> None:
    def line(backend: str, step: int, verdict: str) -> dict[str, Any]:
        task = {"key": f"m/{backend}/s0", "collection": "model", "problem_id": 5, "sample": 0, "backend": backend}
        answer = {"tokens_in": 100, "tokens_out": 20, "cost_usd": 0.1}
        return {"run": {"id": "r"}, "task": task, "step": step, "answer": answer, "evaluation": document(5, verdict)}

    path = write(
        tmp_path / "run.jsonl", line("cuda", 0, "wrong"), line("cuda", 1, "correct"), line("triton", 0, "race")
    )
    found = read_results([path])
    assert set(found.collections()) == {"model"}
    assert [(s.index, s.verdict, s.tokens) for s in found.samples] == [(0, "correct", 240), (1, "race", 120)]
    assert found.earlier_steps == 1
    assert not found.unreadable


def test_published_numbers_and_their_contradictions() -> None:
    results = published()
    assert results.problems == 87
    for key, model in results.models.items():
        assert set(model.modes) == set(PUBLISHED)
        assert sum(model.modes.values()) == 87
        assert model.modes[FailureMode.CORRECT] == model.solved.pass_at_1
        assert list(model.curve.values()) == sorted(model.curve.values(), reverse=True)
        rows = [category.results[key] for category in results.categories]
        sums, total = Solved(*(sum(column) for column in zip(*rows, strict=True))), model.solved
        differs = {name for name in total._fields if getattr(sums, name) != getattr(total, name)}
        noted = {note.about.partition(" ")[2] for note in results.notes if note.about.startswith(f"{key} ")}
        assert differs == noted - {"curve"}, key
        off = abs(model.curve[0.0] - model.solved.pass_at_1 / 87) > 0.01
        assert off == ("curve" in noted), key
    assert sum(category.problems for category in results.categories) == 86  # and a note says so
    assert any("86" in note.text for note in results.notes)
    assert [category.parallelism for category in results.categories] == [
        word for word in ("collective", "tp", "sp", "cp", "pp", "dp", "ep", "fsdp", "vocab", "graph", "geometric", "other")
        if word in PARALLELISM
    ]  # fmt: skip
    assert sum(results.sources.values()) == 87
    assert results.agent.single_shot_correct == results.models[results.agent.model].solved.pass_at_1
    assert {mechanism["backend"] for mechanism in results.mechanisms} == {"cuda", "triton", "parallelkittens"}


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["score", *map(str, arguments)])


@pytest.fixture
def two_runs(tmp_path: Path) -> tuple[Path, Path]:
    write(tmp_path / "old" / "all.jsonl", *(document(n, "wrong") for n in range(1, 9)))
    write(tmp_path / "new" / "all.jsonl", *(document(n) for n in range(1, 9)), document(13, "unsupported"), "{oops")
    return tmp_path / "old", tmp_path / "new"


def test_the_tables(two_runs: tuple[Path, Path]) -> None:
    result = run(*two_runs, "--compare", "--published", "--by", "pattern")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for expected in (
        "collection old", "collection new", "9 samples of 9 problems; 1 not judged", "say nothing about NVLink",
        "output mismatch 8", "pass@1 100.0 % 8 of 8", "fast_1@1, proven 100.0 %", "all-reduce", "GPT-5.5 ",
        "new solves 8 of 8 problems, old 0", "more than chance explains", "1 entries could not be read", "sum to 86",
    ):  # fmt: skip
        assert expected in text, expected
    assert "all.jsonl:10: not JSON" in result.stderr


def test_json_and_csv_are_alone_on_standard_output(two_runs: tuple[Path, Path]) -> None:
    result = run(*two_runs, "--json", "--compare", "--by", "layer", "--k", "1,2")
    said = json.loads(result.stdout)
    old, new = said["collections"]
    assert new["pass_at"]["1"]["problems"] == 8
    assert new["failure_modes"]["unsupported"] == 1
    assert old["fast_1_at"]["2"]["value"] == 0
    assert new["fast_p"]["1.5"]["value"] == 1
    assert new["fast_p"]["2"]["value"] == 0
    assert said["comparison"]["only_second"] == 8
    assert said["unreadable"][0]["where"].endswith(":10")
    assert {group["axis"] for group in new["by"]} == {"layer"}
    table = list(csv.DictReader(io.StringIO(run(*two_runs, "--csv").stdout)))
    assert list(table[0]) == list(COLUMNS)
    assert len(table) == 17
    assert (table[8]["failure_mode"], table[8]["speedup"], table[0]["speedup"]) == ("correct", str(TIMING.speedup), "")


def test_wrong_usage_is_one_line(tmp_path: Path, two_runs: tuple[Path, Path]) -> None:
    empty, broken = tmp_path / "empty", write(tmp_path / "broken.jsonl", "{oops", "[]")
    empty.mkdir()
    for arguments, expected in (
        ((empty,), "no .json or .jsonl"),
        ((broken,), "2 entries, none readable"),
        ((tmp_path / "absent",), "does not exist"),
        ((write(tmp_path / "x.txt", "x"),), "neither .json nor .jsonl"),
        ((two_runs[0], "--by", "colour"), "--by 'colour'"),
        ((two_runs[0], "--k", "0"), "--k '0'"),
        ((two_runs[0], "--compare"), "two collections"),
        ((two_runs[0], "--json", "--csv"), "standard output"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert expected in result.stderr, arguments
        assert result.stdout == ""
        assert result.stderr.splitlines()[-1].startswith("error: ")
