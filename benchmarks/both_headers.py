"""Do candidates get the same verdict with our torch header and with torch's own? `python benchmarks/both_headers.py DIR`.

A sample of the candidates below DIR is judged twice by `pkb run`, everything else alike. Exit status 1: verdicts differ. What
a candidate with a race gets may differ from run to run by itself; a third run of the files that differ tells the two apart.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pkb.kit import slim
from pkb.store import Store


def judged(files: Path, store: Path, switch: str, options: list[str]) -> dict[str, tuple[str, str]]:
    """Verdict and stage by task."""
    began = time.monotonic()
    command = [sys.executable, "-m", "pkb.cli.main", "run", str(files), "--store", str(store), *options]
    environment = os.environ | {slim.SWITCH: switch, "PKB_CACHE": str(store / "cache")}
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
    with Store(store) as opened:
        run = opened.run("latest")
        found = {row.task_key: (row.verdict, row.stage) for row in opened.evaluations([run.id])}
    way = "torch's own" if switch == "1" else "ours first"
    print(f"{way}: {len(found)} verdicts in {time.monotonic() - began:.0f} s, status {done.returncode}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, help="a sample: every Nth file")
    parser.add_argument("options", nargs="*", help="for `pkb run`, after --")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        files = Path(place) / "files"
        for path in sorted(given.folder.rglob("*.py"))[:: given.every]:
            target = files / path.relative_to(given.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        ours = judged(files, Path(place) / "ours", "0", given.options)
        real = judged(files, Path(place) / "real", "1", given.options)
    differing = {key for key in ours.keys() | real.keys() if ours.get(key) != real.get(key)}
    print(
        f"the same verdict at the same stage: {len(ours.keys() & real.keys() - differing)} of {len(ours.keys() | real.keys())}"
    )
    for key in sorted(differing):
        print(f"  {key}: {ours.get(key)} with ours, {real.get(key)} with torch's own")
    return 1 if differing or not ours else 0


if __name__ == "__main__":
    sys.exit(main())
