"""`pkb demo`: four candidates for problem 1, each judged on the best platform that this machine has."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pkb.platforms.base import PlatformFacts

CANDIDATES = Path(__file__).parent / "demo_candidates"
EXPECTED = {
    "1_allreduce_symmetric.py": "correct",
    "1_allreduce_wrong_on_one_rank.py": "wrong",
    "1_allreduce_race.py": "race",
    "1_allreduce_deadlock.py": "deadlock",
}
EXPECTED_CUDA = {
    "cuda/1_allreduce_correct.py": "correct",
    "cuda/1_allreduce_wrong_on_one_rank.py": "wrong",
    "cuda/1_allreduce_race.py": "race",
    "cuda/1_allreduce_deadlock.py": "deadlock",
}
LIMIT_S = 600


def demo(platform: Annotated[str, typer.Option(help="As for `pkb eval`.")] = "auto") -> None:
    """Judge four bundled CUDA kernels, with or without a GPU: a correct one, a wrong one, one with a race and one that
    deadlocks. Exit status 0 if each gets the right verdict."""
    from pkb.platforms import registry
    from pkb.platforms.base import EMULATED_CUDA

    facts = registry.pick(platform)  # a platform that is not there is the user's matter: said once, not four times
    if facts.without_cuda:
        print(f"The four candidates are written in torch, not in CUDA. {facts.without_cuda}", flush=True)
    elif EMULATED_CUDA in facts.capabilities:
        print("Four CUDA kernels, on an emulated GPU: docs/cuda-on-cpu.md says what that shows.")
        print("The first of them also compiles the emulator, once on this machine: half a minute.", flush=True)
    surprises = []
    for name, verdict in expected(facts).items():
        plan = "standard" if verdict == "correct" else "quick"
        options = ["--platform", platform, "--ranks", "4", "--plan", plan, "--call-limit", "10"]
        print(f"\n$ pkb eval {_short(CANDIDATES / name)} {' '.join(options)}\n", flush=True)
        # Each in a process of its own, as a user would call it.
        result = subprocess.run(
            [sys.executable, "-P", "-m", "pkb.cli.main", "eval", str(CANDIDATES / name), *options],
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        print(result.stdout, flush=True)
        if f" {verdict.upper()}" not in "".join(result.stdout.split("\n")[1:2]):
            surprises.append(f"{name}: expected {verdict}, exit status {result.returncode}")
    for surprise in surprises:
        print(f"unexpected: {surprise}", file=sys.stderr)
    if surprises:
        raise typer.Exit(1)
    print("All four verdicts are as they should be. Next: docs/tutorial.md writes a kernel in fifteen minutes.")


def expected(facts: "PlatformFacts") -> dict[str, str]:
    """The candidates, in CUDA where the platform can run it, with the verdicts they must get."""
    return EXPECTED if facts.without_cuda else EXPECTED_CUDA


def _short(path: Path) -> str:
    """Relative to the working directory if it lies below."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else os.fspath(path)
