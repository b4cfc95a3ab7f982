"""How long every command of pkb stays silent: `python benchmarks/first_output.py [--repeat N] [--json FILE]`.

The time from starting the process to the first byte on standard output or standard error. Wanted: one second at most, half
a second for `pkb --help`, on two cores with nothing else running. Prints a table; exit status 1 if a command took longer.
"""

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CANDIDATE = Path(__file__).parents[1] / "src/pkb/cli/demo_candidates/1_allreduce_symmetric.py"
HELP_S, FIRST_S = 0.5, 1.0
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("--help",),
    ("--version",),
    ("problems",),
    ("show", "13"),
    ("eval", str(CANDIDATE), "--platform", "cpu", "--plan", "quick"),
    ("check", str(CANDIDATE)),
    ("demo", "--platform", "cpu"),
    ("run", str(CANDIDATE), "--backend", "torch", "--platform", "cpu", "--plan", "quick"),
    ("prompt", "13"),
    ("generate", "1", "--model", "mockllm/model", "--platform", "cpu"),
    ("agent", "1", "--model", "mockllm/model", "--platform", "cpu"),
    ("score", "imported"),
    ("report", "imported"),
    ("roofline", "13"),
    ("lint", "1", "--platform", "cpu", "--ranks", "2"),
    ("probe", "--platform", "cpu", "--quick"),
    ("doctor",),
    ("runs",),
    ("runs", "show", "imported"),
    ("runs", "check"),
    ("runs", "transcript", "imported"),
    ("records", "show", "nowhere.tar.gz"),
)


def silence_s(words: tuple[str, ...], folder: Path) -> float:
    """Until the first byte; the command is ended then."""
    environment = os.environ | {"PKB_STORE": str(folder / "store"), "PYTHONUNBUFFERED": "1"}
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "pkb.cli.main", *words], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        select.select([process.stdout], [], [], 60)
        return time.monotonic() - started
    finally:
        process.terminate()
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many is taken (default 3)")
    parser.add_argument("--json", metavar="FILE", help="also write the times")
    options = parser.parse_args()
    late = False
    rows = []
    with tempfile.TemporaryDirectory(prefix="pkb-first-output-") as name:
        folder = Path(name)
        (folder / "kernels").mkdir()
        (folder / "kernels" / "1_allreduce_torch.py").write_bytes(CANDIDATE.read_bytes())
        subprocess.run(
            [sys.executable, "-P", "-m", "pkb.cli.main", "runs", "import", "kernels", "--name", "imported", "--store", "store"],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
        for words in COMMANDS:
            seconds = min(silence_s(words, folder) for _ in range(options.repeat))
            limit = HELP_S if words == ("--help",) else FIRST_S
            late |= seconds > limit
            shown = " ".join("FILE" if word == str(CANDIDATE) else word for word in words)
            rows.append({"command": f"pkb {shown}", "seconds": round(seconds, 3), "limit": limit})
            print(f"{seconds:6.2f} s  {'LATE' if seconds > limit else 'ok  '}  pkb {shown}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
