"""docs/references.md says what the records say: whoever measures again, or changes a problem's cost, makes the page anew."""

from pathlib import Path

from pkb.roofline.hardware import load
from program_files import program

DOCS = Path(__file__).resolve().parents[2] / "docs"
RECORDS = DOCS / "records" / "references"


def test_the_tables_are_those_of_the_records() -> None:
    report = program("benchmarks/reference_report.py")
    rows = report.measured_in(RECORDS, load(str(DOCS / "records" / "h200-virtual.toml")))
    cases = list(dict.fromkeys((size, ranks) for _, size, ranks in rows["reference"]))
    _, _, tables = (DOCS / "references.md").read_text().partition(report.MARK)
    assert tables.strip() == report.page(rows, cases, report.failures_in(RECORDS)).strip()


def test_the_page_counts_what_else_was_tried() -> None:
    references = program("benchmarks/references.py")
    tried = len(list(references.ALTERNATIVES.glob("p*.py")))
    timed = [row for (_, size, _), row in references.read(RECORDS / "alternatives.jsonl").items() if size == "real"]
    said = f"Of the {tried} other baselines in `benchmarks/alternatives` {sum(bool(row['time_us']) for row in timed)} have been"
    assert said in (DOCS / "references.md").read_text()
