"""The site of published kernels, from records alone: what `make report` shows where no GPU is."""

import csv
import json
import re
from pathlib import Path

import pytest
from frontier_records import COLLECTIONS, write_frontier
from made_site import Site, write_site

from pkb.analysis.lost import AS_PUBLISHED, Loss
from pkb.report.frontier import ON_CPU
from pkb.store import Store
from program_files import program

HOSTILE = "<img src=x onerror=alert(1)>"
RENAMED = ("gpt-5.5 cuda", "opus-4.7 cuda", HOSTILE)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Names of published models, one of them judged by one plan alone, a name that is no name, and a record cut in half."""
    folder = tmp_path_factory.mktemp("frontier")
    records = folder / "records"
    write_frontier(records)
    for path in sorted(records.iterdir()):
        text = path.read_text()
        for old, new in zip(COLLECTIONS, RENAMED, strict=True):
            text = text.replace(json.dumps(old), json.dumps(new))
        path.write_text(text)
    (raised,) = records.glob("frontier-gemini*-standard.jsonl")
    one = json.loads(raised.read_text().splitlines()[0])
    one["evaluation"] |= {
        "verdict": "runtime_error", "timing": None, "mismatch": None, "race_kind": None,
        "failure": {"kind": "exception", "name": "ValueError", "message": "shape", "rank": 0},
        "problem": {"id": 13, "name": "gemm_allreduce"},
    }  # fmt: skip
    one["evaluation"]["candidate"] |= {"sha256": "f" * 64}
    raised.write_text(raised.read_text() + json.dumps(one | {"problem": 13}) + "\n")
    (published,) = records.glob("frontier-opus*-published.jsonl")
    published.unlink()
    with Store(folder / "store") as store:
        run = program("tools/frontier_run.py").load(store, records)
    with next(records.glob("frontier-gpt*-standard.jsonl")).open("a") as torn:
        torn.write('{"collection": "gpt-5.5 cuda", "problem": 13, "eval')
    return write_site(folder / "store", [run.id], folder / "site", records=records)


def rows_of(made: Site, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((made.folder / f"csv/{name}.csv").open(newline="", encoding="utf-8")))


def test_what_is_right_as_published_has_no_place_among_the_others(made: Site) -> None:
    text = (made.folder / "index.html").read_text(encoding="utf-8")
    board = text[text.index('id="leaderboard"') : text.index('id="curves"')]
    ours, _, others = board.partition("Judged here by the published protocol")
    assert AS_PUBLISHED not in ours
    assert f"gpt-5.5 cuda{AS_PUBLISHED}" in re.sub(r"<wbr>|&#8203;", "", others)
    places = re.findall(r'class="num rank" data-v="\d+">([^<]*)<', others)
    assert places
    assert set(places) == {""}
    assert f"{12 * len(COLLECTIONS) + 1} candidates in {len(COLLECTIONS)} collections" in " ".join(text.split())


def test_the_published_figures_stand_beside_and_a_plan_that_was_not_run_is_no_zero(made: Site) -> None:
    text = (made.folder / "frontier.html").read_text(encoding="utf-8")
    assert "28 / 22" in text
    assert "36 / 27" in text
    opus = text[text.index('id="frontier-opus-4.7-cuda"') :].partition("</tr>")[0]
    assert "not judged" in opus
    assert "12 judged" in opus
    row = next(row for row in rows_of(made, "frontier") if row["name"] == "opus-4.7 cuda")
    assert (row["judged"], row["judged_as_published"], row["right_as_published"], row["both"]) == ("12", "", "", "0")


def test_every_candidate_says_what_it_lost(made: Site) -> None:
    lost = [row["loss"] for row in rows_of(made, "frontier_verdicts") if row["collection"] == "gpt-5.5 cuda"]
    assert lost.count(Loss.REUSED_OUTPUT.value) == 3
    assert sum(map(bool, lost)) == 6, "three reused, three wrong; what races is not right as published here"
    assert Loss.REUSED_OUTPUT.words in (made.folder / "frontier.html").read_text(encoding="utf-8")


def test_a_record_that_cannot_be_read_is_said(made: Site) -> None:
    assert "<b>1 record could not be read</b>" in (made.folder / "frontier.html").read_text(encoding="utf-8")


def test_a_name_is_text_wherever_it_stands(made: Site) -> None:
    for path in made.folder.rglob("*.html"):
        assert HOSTILE not in path.read_text(encoding="utf-8"), path


def test_a_file_that_is_not_kept_is_no_answer_without_a_candidate(made: Site) -> None:
    pages = [path.read_text(encoding="utf-8") for path in (made.folder / "c").glob("*.html")]
    assert any("Sorted as: tensor shape" in page for page in pages)
    for page in pages:
        assert "The source is not kept here" in page
        assert "The answer held no candidate" not in page
        assert 'class="said"' not in page, "words of ours in a record are not what a candidate said"


def test_where_no_gpu_has_judged_those_of_the_cpu_are_shown_and_nothing_is_faster(tmp_path: Path) -> None:
    records = tmp_path / "records"
    write_frontier(records / ON_CPU)
    for path in (records / ON_CPU).iterdir():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for one in lines:
            one["evaluation"] |= {"platform": "cpu", "size": "tiny", "timing": None}
        path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    with Store(tmp_path / "store") as store:
        run = program("tools/frontier_run.py").load(store, records)
    site = write_site(tmp_path / "store", [run.id], tmp_path / "site", records=records)
    text = (site.folder / "frontier.html").read_text(encoding="utf-8")
    assert "<b>Without a GPU</b>" in text
    assert '<b>3</b><span class="sub">of 12 judged</span>' in text
    assert '<b>9</b><span class="sub">of 12 judged</span>' in text
    write_frontier(records)
    as_published = {path: path.read_bytes() for path in records.glob("*-published.jsonl")}
    for path in as_published:
        path.unlink()
    with Store(tmp_path / "store") as store:
        assert program("tools/frontier_run.py").load(store, records).id == run.id, "nothing to compare them with yet"
    for path, kept in as_published.items():
        path.write_bytes(kept)
    with Store(tmp_path / "store") as store:
        assert program("tools/frontier_run.py").load(store, records).id != run.id, "a GPU's come first"
