"""`make demo`: four candidates for problem 1, each judged on the best platform that this machine has."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = {
    "1_allreduce_symmetric.py": "correct",
    "1_allreduce_wrong_on_one_rank.py": "wrong",
    "1_allreduce_race.py": "race",
    "1_allreduce_deadlock.py": "deadlock",
}
COMMAND = "import sys; from pkb.cli.main import main; sys.argv[0] = 'pkb'; main()"


def main() -> int:
    folder = Path(__file__).parent
    surprises = []
    for name, expected in EXAMPLES.items():
        plan = "standard" if expected == "correct" else "quick"
        arguments = ["eval", str(folder / name), "--ranks", "4", "--plan", plan, "--call-limit", "10"]
        print(f"\n$ pkb {' '.join(['eval', f'examples/{name}', *arguments[2:]])}\n", flush=True)
        result = subprocess.run(
            [sys.executable, "-c", COMMAND, *arguments], stdout=subprocess.PIPE, text=True, timeout=600, check=False
        )
        print(result.stdout, flush=True)
        if f" {expected.upper()}" not in result.stdout.split("\n")[1]:
            surprises.append(f"{name}: expected {expected}, exit status {result.returncode}")
    for surprise in surprises:
        print(f"unexpected: {surprise}", file=sys.stderr)
    if not surprises:
        print(
            "All four verdicts are as they should be. Next: docs/kit.md to write a kernel, `pkb problems` to choose one."
        )
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
