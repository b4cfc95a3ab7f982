"""Watches the size of the code: files past 400 lines must say why in their first line, and the total has a ceiling."""

import sys
from pathlib import Path

LIMIT = 400
TOTAL = 44_000
ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    sizes = {path: len(path.read_text().splitlines()) for path in sorted((ROOT / "src").rglob("*.py"))}
    excused = "long because"
    failures = [
        f"{path.relative_to(ROOT)} has {lines} lines: split it, or say in its first line that it is long because ..."
        for path, lines in sizes.items()
        if lines > LIMIT and excused not in path.read_text().splitlines()[0]
    ]
    total = sum(sizes.values())
    if total > TOTAL:
        failures.append(f"src has {total} lines, the budget is {TOTAL}: delete something or raise it on purpose")
    print(f"{len(sizes)} files, {total} of {TOTAL} lines, largest {max(sizes.values())}")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
