"""Archives of other machines, merged into docs and site: once, whole or not at all."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from machine_archives import (
    MANIFEST_LIKE,
    PROBE,
    REFERENCE,
    archive,
    bodies,
    control,
    good,
    listed,
)
from typer.testing import CliRunner, Result

import pkb
from pkb.analysis.machine_archive import files_of, judge_sha256, read_archive, read_folder, write_archive
from pkb.analysis.machine_checks import objections
from pkb.analysis.machine_records import MANIFEST, KitStep
from pkb.analysis.machine_tables import kernel_table, markdown, reference_table, stored, with_machines
from pkb.cli.main import app
from pkb.problems.registry import default_registry
from pkb.report.site import Options, build
from pkb.store import Reader, Store
from pkb.types.protocol.codec import Malformed, encode

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """The pages of the project, without what was merged into them."""
    folder = tmp_path / "docs"
    (folder / "records").mkdir(parents=True)
    for page in ("kernels.md", "references.md"):
        shutil.copy(DOCS / page, folder)
    records("tables", "--docs", folder)
    return folder


def records(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["records", *map(str, arguments)])


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_merge_adds_a_column_once(tmp_path: Path, docs: Path) -> None:
    path = archive(tmp_path / "a.tar.gz")
    before = everything(docs)
    done = records("merge", path, "--docs", docs)
    assert done.exit_code == 0, done.stdout + done.stderr
    assert "judge: unknown" in done.stdout
    text = (docs / "kernels.md").read_text()
    assert re.search(r"\| kernel \| size \| ranks \| some-h200 \|\n.*\n\| 02_allgather \| real \| 8 \| \d+ us, ", text)
    assert "| some-h200 | NVIDIA H200 | virtual | 4 | driver 580.159.04, python 3.12.3, torch 2.11.0+cu130 |" in text
    assert "| 02_allgather | real | 8 | 3113 us |" in (docs / "references.md").read_text()
    after = everything(docs)
    assert before.keys() < after.keys()
    assert records("merge", path, path, "--docs", docs).exit_code == 0
    assert everything(docs) == after, "a second time changes nothing"
    shutil.rmtree(docs / "records" / "some-h200")
    assert records("tables", "--docs", docs).exit_code == 0
    assert everything(docs) == before


def test_another_archive_of_the_same_name_is_refused_and_others_are_merged(tmp_path: Path, docs: Path) -> None:
    archive(tmp_path / "a.tar.gz")
    archive(tmp_path / "b.tar.gz", references=[replace(REFERENCE, time_us=3000.0)])
    archive(tmp_path / "c.tar.gz", manifest=replace(MANIFEST_LIKE, machine="other-h200"))
    done = records("merge", *(tmp_path / f"{name}.tar.gz" for name in "abc"), "--docs", docs)
    assert done.exit_code == 1
    assert "b.tar.gz: refused" in done.stdout
    assert "holds other records of that name" in done.stdout
    assert "| other-h200 | some-h200 |" in (docs / "kernels.md").read_text()


def test_what_is_refused_leaves_no_trace(tmp_path: Path, docs: Path) -> None:
    before = everything(docs)
    off = archive(tmp_path / "a.tar.gz", control=[control(1.1, 1.2)])
    done = records("merge", off, "--docs", docs)
    assert done.exit_code == 1
    assert "A/A control" in done.stdout
    lying = archive(tmp_path / "b.tar.gz", manifest=replace(MANIFEST_LIKE, shared_gpu=False))
    assert "is none of ours" in records("merge", lying, "--docs", docs).stdout
    bomb = tmp_path / "c.tar.gz"
    bomb.write_bytes(b"x")
    done = records("merge", bomb, "--docs", docs)
    assert done.exit_code == 2
    assert "error: c.tar.gz is refused" in done.stderr
    assert everything(docs) == before


def test_show_says_what_is_in_it(tmp_path: Path) -> None:
    package = Path(pkb.__file__).parent
    manifest = replace(MANIFEST_LIKE, judge_sha256=judge_sha256(files_of(package)))
    done = records("show", archive(tmp_path / "a.tar.gz", manifest=manifest))
    assert done.exit_code == 0, done.stderr
    for words in (
        "some-h200: NVIDIA H200",
        "known, the one installed here",
        "stopped",
        "A/A control, real, 8 ranks: 1.000",
    ):
        assert words in done.stdout
    document = json.loads(records("show", tmp_path / "a.tar.gz", "--json").stdout)
    assert document["manifest"]["machine"] == "some-h200"


def test_show_lets_no_text_of_a_stranger_steer_the_terminal(tmp_path: Path) -> None:
    steps = (KitStep("\x1b]0;step\x07", "done", 1.0, "\x1b[2Jdetail"),)
    odd = replace(control(), size="\x1b[31msize")
    path = archive(tmp_path / "a.tar.gz", manifest=replace(MANIFEST_LIKE, steps=steps), control=[odd])
    done = records("show", path)
    assert "step" in done.stdout
    assert "size" in done.stdout
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout


def test_the_site_has_a_page_of_machines(tmp_path: Path, docs: Path) -> None:
    assert records("merge", archive(tmp_path / "a.tar.gz"), "--docs", docs).exit_code == 0
    with Store(tmp_path / "store") as store:
        run = store.create_run("sweep", name="empty", note="", config={}, tasks=[], candidates={})
    out = tmp_path / "site"
    with Reader(tmp_path / "store") as reader:
        build(
            reader, [reader.run(run.id)], out=out, registry=default_registry(), tell=lambda what: None,
            options=Options(records=docs / "records", published=False),
        )  # fmt: skip
    assert "machines.html" in (out / "index.html").read_text()
    text = (out / "machines.html").read_text()
    assert '<th scope="col">some-<wbr>h200</th>' in text
    assert "<td>3113 us</td>" in text
    assert "some-h200" in (out / "csv" / "kernels_by_machine.csv").read_text()


def test_what_is_stored_is_read_by_the_same_rules(tmp_path: Path) -> None:
    folder = tmp_path / "some-h200"
    folder.mkdir()
    members = listed(bodies(good()))
    for name, body in members.items():
        (folder / name).write_bytes(body)
    assert read_folder(folder).members == members
    (folder / "probe.jsonl").write_bytes(encode(replace(PROBE, rate=1.0)) + b"\n")
    with pytest.raises(Malformed, match=r"another SHA-256"):
        read_folder(folder)
    write_archive(tmp_path / "a", members)
    assert read_archive(tmp_path / "a").members == members


def test_the_pages_say_what_the_stored_records_say() -> None:
    """After a folder of records has changed: `pkb records tables`."""
    machines, registry = stored(DOCS / "records"), default_registry()
    for page, table in (("kernels.md", kernel_table), ("references.md", reference_table)):
        text = (DOCS / page).read_text()
        assert with_machines(text, markdown(machines, table(machines, registry))) == text
    for one in machines:
        assert not objections(one, registry)
        assert (DOCS / "records" / one.manifest.machine / MANIFEST).is_file(), "the folder has the machine's name"
