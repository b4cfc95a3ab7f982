"""Judges the files of tests/adversaries and writes a table of what each tries, what it must get and what it got.

    python benchmarks/adversary_table.py --platform virtual --out docs/platforms.md [--record runs.jsonl] [--only gpu/honest]

`--platform virtual` takes the files that need a GPU, `cpu` the others. Every result is appended to the record at once, and
files that have not changed since are not judged again, so it can be stopped and started; `--limit` stops it. With `--out`
the table is put between the lines `<!-- adversaries NAME -->` and `<!-- end -->` of that page, NAME being the platform, or
appended with them. Exit status 1 if a verdict is not the wanted one.
"""

import argparse
import re
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from kernel_records import add_row, read_rows

ADVERSARIES = Path(__file__).parent.parent / "tests" / "adversaries"
sys.path.insert(0, str(ADVERSARIES))

from test_adversaries import FOLDERS, fields, judge  # noqa: E402

FAMILY = re.compile(r"^(?:[A-Z]\d+(?:, )?)+: ")
COLUMNS = "| file | what it does | wanted | got | seconds |\n|---|---|---|---|---|"


def files(platform: str, only: str) -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((ADVERSARIES / folder).glob("*.py"))]
    return [
        path for path in found if (fields(path)["platform"] == "cpu") == (platform == "cpu") and only in name_of(path)
    ]


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def tries(path: Path) -> str:
    """The first sentence of what the file says about itself, without the label of its family."""
    text = " ".join(path.read_text(encoding="utf-8").split('"""')[1].split())
    return re.split(r"(?<=\w[.:]) (?=[A-Z])", FAMILY.sub("", text))[0].rstrip(".:").replace("|", "/")


def version_of(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()[:16]


def judged(path: Path) -> dict[str, Any]:
    said = fields(path)
    start = time.monotonic()
    evaluation = judge(path, said)
    communication = evaluation.communication.value
    fits = evaluation.verdict.value in said["expect"].split("|")
    fits = fits and communication in said.get("communication", communication).split("|")
    return {
        "file": name_of(path),
        "version": version_of(path),
        "wanted": _words(said["expect"], said.get("communication")),
        "got": _words(evaluation.verdict.value, communication if "communication" in said else None),
        "fits": fits,
        "seconds": round(time.monotonic() - start, 1),
        "build": evaluation.stage_seconds.get("build", 0.0),
        "detail": evaluation.detail,
        "isolation": evaluation.isolation,
        "printed": evaluation.output_tail[-2000:],
    }


def _words(verdict: str, communication: str | None) -> str:
    verdict = verdict.replace("|", " or ")
    return f"{verdict}, {communication.replace('|', ' or ')}" if communication else verdict


def table(rows: list[tuple[Path, dict[str, Any]]]) -> str:
    lines = [
        f"| `{row['file']}` | {tries(path)} | {row['wanted']} | {row['got'] if row['fits'] else '**' + row['got'] + '**'} | "
        f"{row['seconds']:.0f} |"
        for path, row in rows
    ]
    return "\n".join([COLUMNS, *lines])


def put(page: Path, name: str, text: str) -> None:
    """Between the two markers; at the end of the page, with markers, if it has none."""
    begin, end = f"<!-- adversaries {name} -->", "<!-- end -->"
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    block = f"{begin}\n{text}\n{end}"
    between = re.compile(re.escape(begin) + r"\n.*?" + re.escape(end), re.DOTALL)
    after = between.sub(lambda _: block, before) if between.search(before) else f"{before.rstrip()}\n\n{block}\n"
    page.write_text(after, encoding="utf-8")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--platform", choices=("cpu", "virtual"), default="virtual")
    options.add_argument("--only", default="", help="files whose folder/name holds this")
    options.add_argument("--out", type=Path, help="the page to put the table into")
    options.add_argument(
        "--record", type=Path, default=Path("adversaries.jsonl"), help="results so far, and where new ones go"
    )
    options.add_argument("--limit", type=float, default=1e9, help="begin with no further file after so many seconds")
    args = options.parse_args()
    done = {(row["file"], row["version"]): row for row in read_rows(args.record)}
    begun = time.monotonic()
    rows = []
    for path in files(args.platform, args.only):
        row = done.get((name_of(path), version_of(path)))
        if row is None:
            if time.monotonic() - begun > args.limit:
                print(f"stopped after {args.limit:.0f} s; the next was {name_of(path)}")
                break
            with tempfile.TemporaryDirectory(prefix="pkb-adversaries-") as folder:
                tempfile.tempdir = folder
                try:
                    row = judged(path)
                finally:
                    tempfile.tempdir = None
            add_row(args.record, row)
            print(f"{row['file']}: {row['got']}, {row['seconds']:.0f} s", end="", flush=True)
            print("" if row["fits"] else f"  <-- wanted {row['wanted']}: {row['detail']}\n{row['printed']}", flush=True)
        rows.append((path, row))
    wrong = [row["file"] for _, row in rows if not row["fits"]]
    if args.out:
        put(args.out, args.platform, table(rows))
    print(f"{len(rows)} files, {len(wrong)} with another verdict than wanted {' '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
