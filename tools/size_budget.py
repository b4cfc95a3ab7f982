"""Watches the size of the code: a ceiling for each folder of the engine, and for each file.

`problems/` may grow by files and has no total. A ceiling is raised on purpose, in the commit that needs it, or something is
deleted. Prints what changed against the last commit.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE_LIMIT = 400
PROBLEM_LIMIT = 400
"""Lines of one problem, reference and baseline: what a person reads in one sitting."""
CEILINGS = {
    "src/pkb/analysis": 3010,
    "src/pkb/candidates": 4280,
    "src/pkb/candidates/paths": 1475,  # half of what it was at 0976422
    "src/pkb/cli": 6155,
    "src/pkb/cluster": 1450,
    "src/pkb/generate": 4045,
    "src/pkb/judge": 8325,
    "src/pkb/kit": 4850,
    "src/pkb/platforms": 1360,
    "src/pkb/rank": 10_430,
    "src/pkb/report": 3340,
    "src/pkb/roofline": 565,
    "src/pkb/store": 1655,
    "src/pkb/types": 3790,
    "benchmarks": 11_305,  # 2,500 of them are alternatives/: baselines that were tried
    "solutions": 4575,
    "tests": 61_960,
    "tools": 2435,
}
EXCUSE = "long because"


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def changed() -> dict[str, int]:
    """Lines of Python by file, against the last commit: with nothing uncommitted, against the one before it."""
    dirty = bool(_git("status", "--porcelain", "--untracked-files=no").strip())
    rows = (row.split("\t") for row in _git("diff", "--numstat", "HEAD" if dirty else "HEAD^").splitlines())
    return {name: int(added) - int(gone) for added, gone, name in rows if name.endswith(".py")}


def _git(*command: str) -> str:
    """Nothing where there is no repository to ask."""
    return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False).stdout


def too_long(path: Path) -> str | None:
    name = path.relative_to(ROOT).as_posix()
    limit = PROBLEM_LIMIT if name.startswith("src/pkb/problems/") else FILE_LIMIT
    if lines(path) <= limit or EXCUSE in path.read_text().splitlines()[0]:
        return None
    return f"{name} has {lines(path)} lines, {limit} are allowed: split it, or say in its first line that it is {EXCUSE} ..."


def main() -> int:
    failures = []
    changes = changed()
    for folder, ceiling in CEILINGS.items():
        files = sorted((ROOT / folder).rglob("*.py"))
        total = sum(map(lines, files))
        change = sum(count for name, count in changes.items() if name.startswith(f"{folder}/"))
        print(f"{folder:22} {total:6} of {ceiling:6} lines {change:+6}  {len(files):4} files")
        if total > ceiling:
            failures.append(
                f"{folder} has {total} lines, its ceiling is {ceiling}: delete something, or raise it on purpose"
            )
    uncounted = {f"src/pkb/{path.name}" for path in (ROOT / "src/pkb").iterdir() if any(path.glob("*.py"))}
    failures += [f"{name} has no ceiling" for name in sorted(uncounted - set(CEILINGS) - {"src/pkb/problems"})]
    watched = [
        path for top in ("src", "tests", "benchmarks", "tools", "solutions") for path in (ROOT / top).rglob("*.py")
    ]
    failures += [reason for path in sorted(watched) if (reason := too_long(path))]
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
