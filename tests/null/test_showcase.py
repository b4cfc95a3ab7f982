"""The pages of the three showcases: their tables are what the records say, and a size that is missing is named."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from verdict_examples import example

from pkb.types.verdict import Verdict
from program_files import program

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def showcase() -> Any:
    program("benchmarks/kernel_records.py")
    program("benchmarks/lanes.py")
    program("benchmarks/verdict_table.py")
    return program("benchmarks/showcase.py")


@pytest.mark.parametrize("number", [72, 81, 82])
def test_the_page_says_what_the_records_say(
    showcase: Any, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever changes a kernel, its problem or the points measures again, or says that it has not been."""
    page, records = DOCS / f"showcase-{number}.md", DOCS / "records" / f"showcase-{number}.jsonl"
    made = tmp_path / "page.md"
    made.write_text(page.read_text())
    asked = ["showcase.py", str(number), "--platform", "virtual", "--budget", "0", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", [*asked, "--known", str(records), "--page", str(made)])
    showcase.main()
    assert made.read_text() == page.read_text()


def test_no_verdict_of_the_machine_takes_the_place_of_a_measurement(
    showcase: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one that is read nor one that is reached now, of the same text or of another."""
    records, out = DOCS / "records" / "showcase-82.jsonl", tmp_path / "out"
    before = [json.loads(line) for line in records.read_text().splitlines()]
    asked = ["showcase.py", "82", "--platform", "virtual", "--points", "1", "--out", str(out), "--known", str(records)]
    monkeypatch.setattr(sys, "argv", [*asked, "--keep", str(tmp_path / "kept.jsonl")])
    monkeypatch.setattr(showcase, "resolve", lambda name: name)
    monkeypatch.setattr(showcase, "read", lambda path: SimpleNamespace(sha256="of another text"))
    monkeypatch.setattr(showcase, "evaluate", lambda job: example(Verdict.HARNESS_ERROR))
    for times in (1, 2):
        assert showcase.main() == 1
        assert [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()] == before[:1]
        assert len((out / "showcase.jsonl").read_text().splitlines()) == times, "it is tried again"


def test_a_size_that_would_not_end_in_time_is_not_begun(
    showcase: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = DOCS / "records" / "showcase-82.jsonl"
    seconds = [sum(json.loads(line)["verdict"]["stage_seconds"].values()) for line in records.read_text().splitlines()]
    monkeypatch.setattr(sys, "argv", [
        "showcase.py", "82", "--platform", "virtual", "--points", "1", "--out", str(tmp_path), "--known", str(records),
        "--budget", str(seconds[0] - 1),
    ])  # fmt: skip
    monkeypatch.setattr(showcase, "resolve", lambda name: name)
    monkeypatch.setattr(showcase, "read", lambda path: SimpleNamespace(sha256="of another text"))
    monkeypatch.setattr(showcase, "evaluate", lambda job: pytest.fail("begun"))
    assert showcase.main() == 1


def test_times_alone_and_missing_sizes_are_named(showcase: Any) -> None:
    first = json.loads((DOCS / "records" / "showcase-82.jsonl").read_text().splitlines()[0])
    brief = first | {"label": "brief", "verdict": first["verdict"] | {"plan": showcase.TIMES_ONLY}}
    text = showcase.table([first, brief], ["many tokens"], ["few tokens"], "virtual", 8)
    assert "Times only, for races see [kernels.md](kernels.md): brief." in text
    assert "Not measured yet: many tokens." in text
    assert "Of an earlier text of the kernel or the kit, or version of the problem: few tokens." in text


def test_an_earlier_text_counts_for_the_same_shape_and_baseline_only(showcase: Any) -> None:
    """Of whatever version of the problem: the page says that it is another."""
    keys = [json.dumps(asked) for asked in ([82, 1, 1, "few", "before"], [82, 1, 2, "few", "before"])]
    done = {key: {"key": key} for key in keys}
    assert showcase.of_earlier_text(done, json.dumps([82, 1, 1, "few", "now"])) == {"key": keys[0]}
    assert showcase.of_earlier_text(done, json.dumps([82, 2, 2, "few", "now"])) == {"key": keys[1]}
    assert showcase.of_earlier_text(done, json.dumps([82, 1, 3, "few", "now"])) is None
    assert showcase.of_earlier_text(done, json.dumps([82, 1, 1, "many", "now"])) is None
