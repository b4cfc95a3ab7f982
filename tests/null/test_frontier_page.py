"""What the page of published kernels concludes, and what it leaves open: hand-made records that are partial, torn or odd."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from test_frontier import frontier, pages, passes, record, runs, timing
from typer.testing import CliRunner

from pkb.analysis.lost import AS_PUBLISHED
from pkb.analysis.published import published
from pkb.cli.main import app
from pkb.problems.registry import default_registry
from pkb.store import Store
from program_files import program

counts, claims = program("benchmarks/frontier_counts.py"), program("benchmarks/frontier_claims.py")
NAMES = {problem.id: problem.name for problem in default_registry().all()}
TREE = "gpt-5.5 cuda"


def write(folder: Path, records: Iterable[dict[str, Any]], **tree: int) -> Path:
    for one in records:
        passes.keep(folder, one)
    (folder / frontier.COUNTS).write_text(json.dumps({TREE: tree}))
    return folder


def judged(verdicts: dict[str, int], *, plan: str = "published", first: int = 1) -> list[dict[str, Any]]:
    """So many of each, for problems that follow each other."""
    words = [word for word, number in verdicts.items() for _ in range(number)]
    numbers = sorted(NAMES)[first - 1 :]
    return [record(n, NAMES[n], word, plan=plan) for n, word in zip(numbers, words, strict=False)]


def claim(folder: Path, words: str) -> Any:
    return next(one for one in claims.claims(counts.trees_of(folder), folder) if one.claim.startswith(words))


def test_a_whole_tree_decides_and_a_part_of_it_does_not(tmp_path: Path) -> None:
    records = judged({"correct": 3, "wrong": 6, "compile_error": 1})
    write(tmp_path, records, files=10)
    assert claim(tmp_path, "fewer than 35").agrees is True
    assert claim(tmp_path, "about three").agrees is True
    assert claim(tmp_path, "failures are mostly").agrees is True
    assert claim(tmp_path, "few failures").agrees is True
    write(tmp_path, [], files=11)
    for words in ("fewer than 35", "about three", "failures are mostly", "few failures"):
        assert claim(tmp_path, words).agrees is None
    assert "3 of 10 (30%), so far" in claim(tmp_path, "fewer than 35").here


def test_one_tree_denies_a_claim_and_does_not_confirm_it_for_all(tmp_path: Path) -> None:
    other = [one | {"collection": "opus-4.7 cuda"} for one in judged({"wrong": 1}, plan="standard")]
    write(tmp_path, [*judged({"correct": 3, "wrong": 7}), *other], files=10)
    assert claim(tmp_path, "fewer than 35").agrees is None
    assert claim(tmp_path, "about three").agrees is None
    write(tmp_path, judged({"correct": 4, "wrong": 6}), files=10)
    assert claim(tmp_path, "fewer than 35").agrees is False


def test_what_is_in_doubt_decides_nothing_and_widens_the_total(tmp_path: Path) -> None:
    records = judged({"correct": 27, "unsupported": 4, "rejected": 1, "wrong": 8})
    records[-1] |= {"beside": 5, "provisional": True}
    write(tmp_path, records, files=40)
    assert claim(tmp_path, "fewer than 35").agrees is None
    page = pages.page(tmp_path)
    solved = published().models["gpt-5.5"].solved
    assert (
        f"27 right as published of 40, 5 could not be run, 1 in doubt: 27 to 33; single shot has {solved.pass_at_1}"
        in page
    )
    assert "as near to the one as to the other" in page


def test_a_tree_that_nobody_judged_is_there_with_nothing_judged(tmp_path: Path) -> None:
    write(tmp_path, judged({"wrong": 2}), files=2)
    trees = {TREE: {"files": 2}, "opus-4.7 cuda": {"files": 87, "gone": 1}, "gemini-3-pro triton": {"files": 70}}
    (tmp_path / frontier.COUNTS).write_text(json.dumps(trees))
    page = pages.page(tmp_path)
    assert "| opus-4.7 cuda | 87 | 86 | 0 of 86 | 0 | 0 | 0 of 86 | 0 | 0 |" in page
    assert "| gemini-3-pro triton | 70 | 70 | 0 of 70 |" in page
    assert "- opus-4.7 cuda: 0 of 86 judged as published" in page
    assert "| output mismatch | 26, 2, - | 12, -, - | -, -, - |" in page
    assert claim(tmp_path, "fewer than 35").agrees is None


def test_every_claim_has_a_row_whatever_was_judged(tmp_path: Path) -> None:
    write(tmp_path, judged({"race": 2}, plan="standard"), files=2)
    rows = [one.row for one in claims.claims(counts.trees_of(tmp_path), tmp_path)]
    assert len(rows) == 8
    assert all(cell for row in rows for cell in row)
    page = pages.page(tmp_path)
    assert "no tree judged as published" in page
    assert "| compile or syntax | 16, -, 0 |" in page, "not judged by a plan is no count of it"


def test_baselines_are_those_of_all_problems(tmp_path: Path) -> None:
    """Not of those alone that a candidate has solved, and not those that the plan `standard` is timed against."""
    records = Path(__file__).parents[2] / "docs" / "records"
    write(tmp_path, judged({"correct": 1}), files=1)
    assert claim(tmp_path, "over 90").agrees is None
    (tmp_path / claims.MACHINE).symlink_to(records / claims.MACHINE)
    (tmp_path / claims.REFERENCES).mkdir()
    lines = (records / claims.REFERENCES / "references.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / claims.REFERENCES / "references.jsonl").write_text(
        "".join(line for line in lines if '"id": 1,' in line)
    )
    found = claim(tmp_path, "over 90")
    assert found.agrees is not None
    assert "references at `paper`, each by itself" in found.here


def test_a_text_that_was_not_read_has_no_paths(tmp_path: Path) -> None:
    """As on a machine without tree-sitter: what is not seen is not absent."""
    records = judged({"correct": 4})
    for one in records:
        one["evaluation"]["paths"] = ["unknown", "sm_load_store"]
    write(tmp_path, records, files=4)
    assert claim(tmp_path, "TMA").agrees is None
    assert claim(tmp_path, "copy engines").agrees is None
    assert f"| {TREE} | 4 | not read |" in pages.page(tmp_path)
    for one in records:
        one["evaluation"]["paths"] = ["sm_load_store"]
    assert claim(write(tmp_path, records, files=5), "TMA").agrees is None, "four of five files were read"
    tree = {"files": 5, "paths": {"sm_load_store": 5}}
    (tmp_path / frontier.COUNTS).write_text(json.dumps({TREE: tree}))
    assert claim(tmp_path, "TMA").agrees is True
    assert claim(tmp_path, "copy engines").agrees is True


def test_a_record_that_was_cut_off_is_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, judged({"wrong": 3}), files=3)
    (path,) = tmp_path.glob("*.jsonl")
    whole = path.read_text()
    path.write_text(whole[:-20])
    assert len(passes.known_in([tmp_path])) == 2
    assert "cut off" in capsys.readouterr().err
    (tree,) = counts.trees_of(tmp_path)
    assert len(tree.as_published) == 2
    assert not tree.is_whole(tree.as_published)
    with Store(tmp_path / "store") as store, pytest.raises(SystemExit, match="is no record"):
        runs.load(store, tmp_path)
    passes.keep(tmp_path, json.loads(whole.splitlines()[-1]))
    assert path.read_text() == whole
    path.write_text(whole.replace("{", "", 1))
    with pytest.raises(ValueError, match=r"jsonl:1 is no record"):
        counts.trees_of(tmp_path)


def test_one_text_for_two_problems_is_judged_twice_and_twice_for_one_once(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("1_allreduce_cuda.py", "2_allgather_cuda.py", "01_allreduce_cuda.py"):
        (tree / name).write_text("# the same\n")
    like, parts = frontier.Case("", "cpu", 4, "tiny", "auto"), frontier.parts_of(["quick"], [tree])
    work = frontier.planned(parts, like, {})
    assert sorted(task.problem_id for task in work.tasks.values()) == [1, 2]
    assert work.counts["tree"]["repeated"] == 1
    (one, _) = (work.files[key] for key in work.tasks)
    known = {("tree", "quick", 1, frontier.sha_of(one)): ""}
    assert [task.problem_id for task in frontier.planned(parts, like, known).tasks.values()] == [2]


def test_paths_that_were_read_elsewhere_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep on a machine without tree-sitter brings its counts home."""
    home, out = tmp_path / "home", tmp_path / "out"
    home.mkdir()
    out.mkdir()
    (home / frontier.COUNTS).write_text(json.dumps({TREE: {"files": 9, "paths": {"nvls": 1}}, "another": {"files": 1}}))
    monkeypatch.setattr(frontier, "RECORDS", home)
    frontier.count_files(out, frontier.Planned({}, {}, {}, {TREE: {"files": 10}}))
    assert json.loads((out / frontier.COUNTS).read_text()) == {TREE: {"files": 10, "paths": {"nvls": 1}}}


def test_a_record_of_a_problem_that_is_gone_is_not_known(tmp_path: Path) -> None:
    gone = record(1, "allreduce", "wrong", plan="standard", problem={"id": 999, "name": "gone", "version": 1})
    assert not passes.is_present(gone)


def test_a_run_that_was_stopped_half_way_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, judged({"wrong": 3}), files=3)
    with Store(tmp_path / "store") as store:
        recorded = store.record_evaluation
        there: list[str] = []

        def stopping(run: str, key: str, document: Any) -> Any:
            if len(there) == 2:
                raise KeyboardInterrupt
            there.append(key)
            return recorded(run, key, document)

        monkeypatch.setattr(store, "record_evaluation", stopping)
        with pytest.raises(KeyboardInterrupt):
            runs.load(store, tmp_path)
        monkeypatch.setattr(store, "record_evaluation", recorded)
        run = runs.load(store, tmp_path)
        assert len(list(store.evaluations([run.id]))) == 3
        assert [one.state for one in store.runs()] == ["complete"]


def test_the_score_of_such_a_run_has_both_readings(tmp_path: Path) -> None:
    both = [
        one for plan, word in (("standard", "race"), ("published", "correct")) for one in judged({word: 2}, plan=plan)
    ]
    write(tmp_path, both, files=2)
    with Store(tmp_path / "store") as store:
        run = runs.load(store, tmp_path)
    shown = CliRunner().invoke(app, ["score", run.id, "--store", str(tmp_path / "store")])
    assert shown.exit_code == 0, shown.output
    assert "of 2 candidates judged by both plans" in shown.output
    assert f"{TREE}{AS_PUBLISHED}{AS_PUBLISHED}" not in shown.output


def test_a_gain_that_the_wall_clock_denies_is_none(tmp_path: Path) -> None:
    slow = record(1, "allreduce", "correct", plan="published", timing=timing(1.5) | {"decision": "unproven"})
    write(tmp_path, [slow], files=1)
    assert "| 1 / 0 of 1 |" in pages.page(tmp_path)
