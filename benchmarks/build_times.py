"""CPU seconds that candidates' torch extensions take to build, with our header or torch's: `benchmarks/build_times.py DIR`.

DIR holds candidates (`*.py`, in any folder below). Each builder call whose arguments can be read without running the file is
compiled once a way, outside the judge's cache, by the recipe that the judge uses. CPU seconds are those of the compilers.
With a CPU build of torch only object files are made, and nothing is linked.
"""

import argparse
import ast
import dataclasses
import hashlib
import json
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pkb.candidates.constants import Constants, Dynamic
from pkb.candidates.prebuild import arguments_of, find_calls
from pkb.kit import slim, torch_facts
from pkb.kit.errors import CompileError
from pkb.kit.recipes import recipe


@dataclass(frozen=True)
class Timed:
    file: str
    source: str
    """Digest of the CUDA text; empty where only running the candidate can tell it."""
    way: str
    headers: str
    """`ours`, `torch's`, or empty where it did not build."""
    cpu_s: float
    wall_s: float
    error: str


def timed(path: Path, way: str) -> list[Timed]:
    """`way`: `ours` (and nothing else), `real`, or `both` as the judge does it: ours first, torch's where that fails."""
    os.environ[slim.SWITCH] = {"ours": "never", "real": "1", "both": "0"}[way]
    found = []
    for call in find_calls(ast.parse(path.read_text())):
        if call.kind != "extension":
            continue
        began, before = time.monotonic(), _cpu()
        headers = error = source = ""
        with tempfile.TemporaryDirectory() as scratch:
            output = Path(scratch) / "artifact"
            try:
                given = arguments_of(call, Constants())
                source = hashlib.sha256(str(given["cuda_src"]).encode()).hexdigest()[:12]
                order = recipe(call.kind, given)
                order.build(Path(scratch), output)
                headers = "ours" if slim.used_in(output) else "torch's"
            except (CompileError, Dynamic) as failure:
                error = getattr(failure, "first_error", str(failure))
        found.append(Timed(file_name(path), source, way, headers, _cpu() - before, time.monotonic() - began, error))
    return found


def _timed(order: tuple[Path, str]) -> list[Timed]:
    return timed(*order)


def file_name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def kept(rows: Path | None) -> list[Timed]:
    if rows is None or not rows.is_file():
        return []
    return [Timed(**json.loads(line)) for line in rows.read_text().splitlines()]


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(way: str, rows: Sequence[Timed]) -> str:
    built = [row for row in rows if row.headers]
    files, short = {row.file for row in rows}, {row.file for row in rows if not row.headers}
    lines = [f"{way}: {len(built)} of {len(rows)} sources built, all of {len(files - short)} of {len(files)} files"]
    for headers in ("ours", "torch's"):
        seconds = sorted(row.cpu_s for row in built if row.headers == headers)
        if seconds:
            within = sum(second <= 8 for second in seconds)
            lines.append(
                f"  with {headers} header: {len(seconds)}; CPU s median {statistics.median(seconds):.1f}, "
                f"max {seconds[-1]:.1f}, within 8 s {within}"
            )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ways", default="ours", help="ours, real, both, separated by commas")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help="a sample: every Nth file")
    parser.add_argument("--failures", action="store_true", help="the first error of each file that did not build")
    parser.add_argument(
        "--rows", type=Path, help="a JSON line for each source; files that are in it already are not built again"
    )
    given = parser.parse_args()
    files = sorted(given.folder.rglob("*.py"))[:: given.every]
    if torch_facts.cuda_version() is not None:
        slim.adaptor_path(build=True)  # once for all, and no part of any time below
    for way in given.ways.split(","):
        rows = [row for row in kept(given.rows) if row.way == way]
        done = {row.file for row in rows}
        orders = [(path, way) for path in files if file_name(path) not in done]
        with multiprocessing.Pool(given.jobs, maxtasksperchild=1) as pool:
            for found in pool.imap(_timed, orders, chunksize=1):
                rows += found
                if given.rows:
                    with given.rows.open("a") as file:
                        file.writelines(json.dumps(dataclasses.asdict(row)) + "\n" for row in found)
        wanted = set(map(file_name, files))
        rows = [row for row in rows if row.file in wanted]
        print(table(way, rows), flush=True)
        for row in rows:
            if given.failures and not row.headers:
                print(f"  {row.file}: {row.cpu_s:.1f} s: {row.error[:300]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
