"""The site as files, without a browser: links, tables, hostile text, what is counted, how it is written."""

import csv
import json
import re
import threading
import urllib.error
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from made_site import Site, write_site
from synthetic import HOSTILE, candidate, evaluation, write_rich
from typer.testing import CliRunner

from pkb.analysis.results import read_results
from pkb.analysis.score import score
from pkb.cli.main import app
from pkb.problems.registry import default_registry
from pkb.report.contenders import contenders
from pkb.report.pages import script_json, spreadsheet_safe, whole_site
from pkb.report.serve import open_server
from pkb.report.source_view import candidate_view, view
from pkb.report.tries import read_tries
from pkb.report.words import VERDICT_MODE
from pkb.store import Reader, Store, TaskSpec
from pkb.store.exporting import write_jsonl
from pkb.types.case import Case
from pkb.types.errors import UserError
from pkb.types.verdict import Verdict


class Document(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if name == "id" and value:
                self.ids.add(value)
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            if name.startswith("on"):
                self.handlers.append(name)


@pytest.fixture(scope="module")
def documents(rich: Site) -> dict[Path, Document]:
    return {path: Document(path) for path in sorted(rich.folder.rglob("*.html"))}


def test_every_link_leads_somewhere_inside(rich: Site, documents: dict[Path, Document]) -> None:
    assert len(documents) > 150
    for path, document in documents.items():
        for link in document.links:
            if link == "data:,":
                continue
            assert not re.match(r"[a-z]+:|//", link), f"{path.name} leads outside: {link}"
            target, _, fragment = link.partition("#")
            found = (path.parent / unquote(target)).resolve() if target else path
            assert found.is_file(), f"{path.name} leads to {link}"
            assert rich.folder in found.parents
            if fragment and "=" not in fragment and found.suffix == ".html":
                assert unquote(fragment) in documents[found].ids, f"{path.name} leads to {link}"


def test_all_try_pages_and_problem_pages_are_there(rich: Site) -> None:
    with Reader(rich.store) as reader:
        tries = read_tries(reader, [reader.run(name) for name in rich.runs])
    assert {path.stem for path in (rich.folder / "c").glob("*.html")} == {each.slug for each in tries}
    assert len(list((rich.folder / "p").iterdir())) == len(default_registry().ids())


def test_hostile_text_makes_no_element(documents: dict[Path, Document]) -> None:
    for path, document in documents.items():
        assert not {"img", "iframe", "object", "embed"} & set(document.tags), path
        assert not document.handlers, path


def test_hostile_text_is_shown_as_text(rich: Site) -> None:
    pages = [path.read_text() for path in (rich.folder / "c").glob("*.html")]
    shown = next(text for text in pages if "&lt;/script&gt;&lt;img src=x onerror=" in text)
    assert "{{7*7}}" in shown, "a template was rendered twice"
    assert "\u202e" not in shown, "text that turns the line around must be made visible"
    assert "⟨U+202E⟩" in shown
    for path in (rich.folder / "data").rglob("*.js"):
        assert "</" not in path.read_text()


def test_json_in_scripts_cannot_end_them() -> None:
    text = script_json({"x": "</script><!-- & \u2028"})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {"x": "</script><!-- & \u2028"}


def test_tables_are_csv_files_with_every_row(rich: Site) -> None:
    rows = list(csv.DictReader((rich.folder / "csv/verdicts.csv").open(newline="", encoding="utf-8")))
    assert len(rows) == len(list((rich.folder / "c").glob("*.html")))
    assert all((rich.folder / row["page"]).is_file() for row in rows)
    assert not any(value.startswith(("=", "+", "@")) for row in rows for value in row.values())
    for path in (rich.folder / "csv").rglob("*.csv"):
        assert list(csv.DictReader(path.open(newline="", encoding="utf-8"))), f"{path} is empty"


def test_a_formula_is_text_in_a_spreadsheet() -> None:
    assert spreadsheet_safe("=HYPERLINK(1)") == "'=HYPERLINK(1)"
    assert spreadsheet_safe(-1.5) == -1.5


def test_figures_are_pictures(rich: Site) -> None:
    names = {path.name for path in (rich.folder / "figures").iterdir()}
    for name in ("fast_p", "failure_modes", "heat_parallelism", "heat_layer", "heat_pattern", "agent_progress"):
        assert {f"{name}.png", f"{name}.svg"} <= names
    assert (rich.folder / "figures/fast_p.png").read_bytes().startswith(b"\x89PNG")
    assert "<script" not in (rich.folder / "figures/failure_modes.svg").read_text()


def test_the_leaderboard_says_what_pkb_score_says(rich: Site, tmp_path: Path) -> None:
    """By another way: the run exported, read back and scored, against the figures in the leaderboard's CSV."""
    out = tmp_path / "shots.jsonl"
    with Reader(rich.store) as reader:
        write_jsonl(reader, [reader.run(rich.runs[0])], out=str(out))
        answers = {task.key for task in reader.tasks(rich.runs[0])}
        judged = {row.task_key for row in reader.evaluations([rich.runs[0]])}
    missing = [key for key in answers - judged if key.startswith("maker%2Fbeta-2/")]
    with out.open("a") as file:  # an export has evaluations only; a task without an answer counts as one that failed
        for key in missing:
            _, stem, _, sample, *_ = key.split("/")
            entry = {
                "collection": "maker/beta-2",
                "problem": int(stem[:2]),
                "sample": int(sample[1:]),
                "evaluation": None,
            }
            file.write(json.dumps(entry) + "\n")
    found = read_results([out]).collections()["maker/beta-2"]
    expected = score(found, ks=(1, 2))
    rows = list(csv.DictReader((rich.folder / "csv/leaderboard.csv").open(newline="", encoding="utf-8")))
    (single,) = [row for row in rows if row["name"] == "maker/beta-2" and row["view"] == "single"]
    (best,) = [row for row in rows if row["name"] == "maker/beta-2" and row["view"] == "best"]
    assert expected.fast_1_at
    assert expected.speedup
    assert float(single["correct"]) == pytest.approx(expected.pass_at[1].value)
    assert float(best["correct"]) == pytest.approx(expected.pass_at[2].value)
    assert float(best["custom"]) == pytest.approx(expected.custom_pass_at[2].value)
    assert float(best["faster"]) == pytest.approx(expected.fast_1_at[2].value)
    assert float(best["speedup"]) == pytest.approx(expected.speedup.value)
    assert float(single["cost_usd"]) == pytest.approx(0.031 * 24)
    assert float(best["library"]) + float(best["custom"]) >= float(best["correct"]) - 1e-9


def test_one_candidate_at_two_sizes_is_not_two_tries(rich: Site) -> None:
    with Reader(rich.store) as reader:
        everybody = contenders(read_tries(reader, [reader.run(name) for name in rich.runs]))
    names = {one.name: one for one in everybody}
    assert {"mine · paper", "mine · real"} <= set(names)
    assert all(one.most_tries == 1 for name, one in names.items() if name.startswith("mine"))
    assert {one.kind for name, one in names.items() if name.startswith("maker/alpha-1")} == {"model", "agent"}
    assert len({one.id for one in everybody}) == len(everybody)


def test_a_mixed_collection_stays_together_where_nothing_counts_twice(tmp_path: Path) -> None:
    """Problems judged with different numbers of ranks are still one collection, and its place says that they are mixed."""
    import random

    first, second = default_registry().get(1).stem, default_registry().get(2).stem
    tasks = [
        TaskSpec(collection="m", case=Case(stem, platform="node", ranks=ranks, size="paper"), backend="cuda")
        for stem, ranks in ((first, 2), (second, 4))
    ]
    with Store(tmp_path / "s") as store:
        run = store.create_run("sweep", tasks=tasks)
        for task in tasks:
            store.record_evaluation(run.id, task.key, evaluation(random.Random(0), task, verdict=Verdict.CORRECT),
                                    candidate=candidate(task, 0))  # fmt: skip
        (one,) = contenders(read_tries(store, [run]))
    assert one.name == "m"
    assert sorted(one.conditions["ranks"]) == ["2", "4"]


def test_what_cannot_be_said_is_not_zero(tmp_path: Path) -> None:
    """One collection on cpu without times: no speedup, no curve, and the platform's note beside it."""
    import random

    task = TaskSpec(
        collection="mine", case=Case("01_allreduce", platform="cpu", ranks=2, plan="quick"), backend="torch"
    )
    with Store(tmp_path / "s") as store:
        run = store.create_run("sweep", name="one", tasks=[task])
        store.record_evaluation(run.id, task.key, evaluation(random.Random(3), task, verdict=Verdict.CORRECT),
                                candidate=candidate(task, 0))  # fmt: skip
    site = write_site(tmp_path / "s", [run.id], tmp_path / "out", published=False)
    text = (site.folder / "index.html").read_text()
    assert "not timed" in text
    assert "Nothing was timed" in text
    assert "times say nothing about GPUs or NVLink" in text
    assert "published, not measured here" not in text
    assert "There is nothing to compare with" in (site.folder / "compare.html").read_text()
    (row,) = csv.DictReader((site.folder / "csv/leaderboard.csv").open())
    assert row["faster"] == row["speedup"] == row["utilisation"] == row["cost_usd"] == ""


def test_a_run_without_outcomes_makes_a_site(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store:
        run = store.create_run(
            "sweep", name="new", tasks=[TaskSpec(collection="m", case=Case("01_allreduce"), backend="cuda")]
        )
    site = write_site(tmp_path / "s", [run.id], tmp_path / "out")
    assert "No verdicts yet" in (site.folder / "verdicts.html").read_text()
    assert "published, not measured here" in (site.folder / "index.html").read_text()


def test_published_results_are_marked_wherever_they_stand(rich: Site) -> None:
    for name in ("index.html", "failures.html", "published.html"):
        assert "published, not measured here" in (rich.folder / name).read_text()


def test_a_proven_race_is_drawn_with_both_lanes(rich: Site) -> None:
    pages = [page.read_text() for page in (rich.folder / "c").glob("*.html")]
    races = [text for text in pages if 'id="race"' in text]
    assert races
    assert all(text.count('class="line race-missing"') == 3 for text in races), "wide, narrow, and the key"
    assert all("sum += buffers[peer][i];" in text for text in races)


def test_times_of_a_rejected_candidate_are_called_a_claim(rich: Site) -> None:
    rows = csv.DictReader((rich.folder / "csv/verdicts.csv").open(newline="", encoding="utf-8"))
    page = next(row["page"] for row in rows if row["verdict"] == "rejected" and row["collection"].startswith("mine"))
    text = (rich.folder / page).read_text()
    assert "Times that it claimed" in text
    assert "They are not believed" in text


def test_paths_are_marked_at_their_lines() -> None:
    source = "import torch.distributed as dist\n\n\ndef solution(x):\n    dist.all_reduce(x)\n    return x\n"
    shown = candidate_view(source.encode())
    assert [line.number for line in shown.lines if "library" in line.paths] == [5]
    assert len(shown.lines) == 6


def test_lines_keep_their_numbers_whatever_the_text_holds() -> None:
    text = "a = '''\n\n<b>\n'''\n\n\n# \x0c \u2028 x\n\tb = 1"
    shown = view(text)
    assert [line.number for line in shown.lines] == list(range(1, 9))
    assert "&lt;b&gt;" in shown.lines[2].html
    assert "U+000C" in shown.lines[6].html
    assert len(view("x = 1\n" * 5000).lines) == 4000


def test_tones_of_the_script_are_those_of_the_pages() -> None:
    script = Path("src/pkb/report/static/table.js")
    text = (Path(__file__).parents[2] / script).read_text()
    found = re.search(r"VERDICT_MODE = \{([^}]*)\}", text)
    assert found
    assert dict(re.findall(r'(\w+): "(\w+)"', found[1])) == VERDICT_MODE
    assert set(VERDICT_MODE) == {verdict.value for verdict in Verdict} | {"no_answer"}


def test_only_a_report_is_ever_replaced(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="no report of ours"), whole_site(other):
        pass
    assert (other / "thesis.txt").read_text() == "years of work"


def test_a_failed_build_leaves_the_old_site(tmp_path: Path) -> None:
    out = tmp_path / "site"
    with whole_site(out) as folder:
        (folder / "index.html").write_text("old")
    with pytest.raises(FileNotFoundError), whole_site(out) as folder:
        (folder / "index.html").write_bytes((folder / "missing").read_bytes())
    assert (out / "index.html").read_text() == "old"
    with whole_site(out) as folder:
        (folder / "index.html").write_text("new")
    assert (out / "index.html").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_serving_stays_on_this_machine(rich: Site) -> None:
    server = open_server(rich.folder, 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        host, port = server.server_address[:2]
        assert host == "127.0.0.1"
        with urllib.request.urlopen(f"http://{host}:{port}/", timeout=10) as answer:
            assert b"Leaderboard" in answer.read()
        for path in ("/csv/", "/../store/pkb.db", "/%2e%2e/store/pkb.db"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=10)
            assert refused.value.code == 404
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def test_command(tmp_path: Path) -> None:
    runs = write_rich(tmp_path / "store")
    asked = ["report", runs[2], runs[2], "--store", str(tmp_path / "store"), "--out", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["candidates"] == 2 * len(Verdict), "a run that is named twice counts once"
    assert Path(said["index"]).is_file()
    wrong = CliRunner().invoke(
        app, ["report", "nothing", "--store", str(tmp_path / "store"), "--out", str(tmp_path / "x")]
    )
    assert wrong.exit_code == 2
    assert not (tmp_path / "x").exists()
    assert HOSTILE not in done.stdout
