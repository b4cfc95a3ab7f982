"""Do candidates get the same verdict with our torch header and with torch's own?

    python benchmarks/frontier.py TREES --only 6,7,12 --plans standard --passes words --lanes 5 --out out/ours --have out/ours
    PKB_REAL_TORCH_HEADERS=1 python benchmarks/frontier.py ...the same... --out out/real --have out/real
    python benchmarks/both_headers.py out/ours out/real

Compares the records of two runs, of which each can be cut off (`--budget`) and goes on where it was. Exit status 1: verdicts
differ, or no file is in both. What a candidate with a race gets may differ from run to run by itself; a third run of the files
that differ tells the two apart. Records of platform cpu are left out: builds for the emulated GPU know our header alone,
whatever the variable says. `same_kernels.py` compares machine code, without a GPU.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from frontier_counts import read_records
from frontier_passes import Key, key_of

Reached = tuple[str, str]
"""Verdict and stage."""


def reached_in(folder: Path) -> dict[Key, Reached]:
    return {
        key_of(record): (record["evaluation"]["verdict"], record["evaluation"]["stage"])
        for path in sorted(folder.glob("frontier-*.jsonl"))
        for record in read_records(path)
        if record["evaluation"]["platform"] != "cpu"
    }


def words(ours: dict[Key, Reached], real: dict[Key, Reached]) -> Iterator[str]:
    both = sorted(ours.keys() & real.keys())
    same = [key for key in both if ours[key] == real[key]]
    counts = ", ".join(f"{n} {verdict}" for verdict, n in Counter(ours[key][0] for key in same).most_common())
    yield f"the same verdict at the same stage: {len(same)} of {len(both)} ({counts})"
    for key in both:
        if ours[key] != real[key]:
            with_ours, with_real = (" at ".join(reached[key]) for reached in (ours, real))
            yield f"  {key[0]}, problem {key[2]}, {key[3][:12]}: {with_ours} with ours, {with_real} with torch's own"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ours", type=Path, help="records of a run with our header")
    parser.add_argument("real", type=Path, help="records of a run with torch's own")
    options = parser.parse_args()
    lines = list(words(reached_in(options.ours), reached_in(options.real)))
    print("\n".join(lines))
    return 1 if len(lines) > 1 or " of 0 " in lines[0] else 0


if __name__ == "__main__":
    sys.exit(main())
