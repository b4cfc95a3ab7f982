"""Judges every CUDA kernel of this repository on platform cpu, beside the verdict it gets on a GPU, and writes a table of them.

    python benchmarks/cuda_on_cpu.py --out docs/cuda-on-cpu.md [--record cuda_on_cpu.jsonl] [--only gpu/honest] [--limit 100]

The kernels are those of `solutions/`, of the examples that models are shown, and of `tests/adversaries/gpu`; those must get
what their files name for a GPU, the others `correct`. Results are recorded at once and files that have not changed are not
judged again, so it can be stopped and started. Exit status 1 if a verdict is another one and no reason is given below.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from adversary_table import ADVERSARIES, judged, name_of, put, version_of
from kernel_records import add_row, read_rows

from pkb.candidates.backend import backend, needs
from pkb.candidates.source import read
from pkb.judge.session import evaluate
from pkb.types.case import Case
from pkb.types.job import Job

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "src" / "pkb" / "generate" / "examples"
EXPLAINED = {
    "gpu/honest_cuda_ipc_in_an_extension": "CUDA IPC handles are not emulated",
}
"""Why a verdict is another one than on a GPU."""
COLUMNS = "| kernel | on a GPU | on cpu | build, s | all stages, s | why not the same |\n|---|---|---|---|---|---|"


def files() -> list[Path]:
    found = [*(ROOT / "solutions").glob("*.py"), *EXAMPLES.glob("cuda*/*.py"), *(ADVERSARIES / "gpu").glob("*.py")]
    return [path for path in sorted(found) if _is_cuda(path)]


def _is_cuda(path: Path) -> bool:
    source = read(path)
    return backend(source) == "cuda" and "gpu" not in needs(source)


def row_of(path: Path) -> dict[str, Any]:
    if path.parent.name == "gpu":
        return judged(path)
    start = time.monotonic()
    job = Job(path, Case(path.name[:2], "cpu", 4, "tiny", "bf16", "quick"), call_limit_s=60.0)
    evaluation = evaluate(job)
    return {
        "file": name_of(path),
        "version": version_of(path),
        "wanted": "correct",
        "got": evaluation.verdict.value,
        "fits": evaluation.verdict.value == "correct",
        "build": evaluation.stage_seconds.get("build", 0.0),
        "seconds": round(time.monotonic() - start, 1),
        "detail": evaluation.detail,
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        f"| `{row['file']}` | {row['wanted']} | {row['got'] if row['fits'] else '**' + row['got'] + '**'} | "
        f"{row.get('build', 0.0):.1f} | {row['seconds']:.1f} | {'' if row['fits'] else EXPLAINED.get(row['file'], '')} |"
        for row in rows
    ]
    return "\n".join([COLUMNS, *lines])


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="", help="files whose folder/name holds this")
    options.add_argument("--out", type=Path, help="the page to put the table into")
    options.add_argument("--record", type=Path, default=Path("cuda_on_cpu.jsonl"), help="results so far, and new ones")
    options.add_argument("--limit", type=float, default=1e9, help="begin with no further file after so many seconds")
    args = options.parse_args()
    os.environ["PKB_TEST_PLATFORM"] = "cpu"
    done = {(row["file"], row["version"]): row for row in read_rows(args.record)}
    begun = time.monotonic()
    rows = []
    for path in files():
        if args.only not in name_of(path):
            continue
        row = done.get((name_of(path), version_of(path)))
        if row is None:
            if time.monotonic() - begun > args.limit:
                print(f"stopped after {args.limit:.0f} s; the next was {name_of(path)}")
                break
            row = row_of(path)
            add_row(args.record, row)
            print(f"{row['file']}: {row['got']}, {row['seconds']:.0f} s", end="", flush=True)
            print("" if row["fits"] else f"  <-- wanted {row['wanted']}: {row['detail']}", flush=True)
        rows.append(row)
    odd = [row["file"] for row in rows if not row["fits"] and row["file"] not in EXPLAINED]
    if args.out:
        put(args.out, "cuda on cpu", table(rows))
    print(f"{len(rows)} files, {len(odd)} with another verdict than on a GPU and no reason for it {' '.join(odd)}")
    return 1 if odd else 0


if __name__ == "__main__":
    sys.exit(main())
