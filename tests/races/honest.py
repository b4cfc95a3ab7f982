"""Everything that is honest, on the race detector: our kernels, the examples that models are shown, and the honest candidates
of tests/adversaries, with 2, 3, 4 and 8 ranks and three traces each. Nothing may be reported.

    python tests/races/honest.py --out honest.jsonl                # all of them; begun again, it goes on
    python tests/races/honest.py --world 4 tests/adversaries/honest/broadcast.py "solution 01 two-shot"

In a process of its own: Triton must be told before it is imported that it is interpreted. `table.py` makes the table.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import mutants
import race_world
import torch
import torch.distributed as dist
from candidate_files import ROOT, header, load, problem_of
from kernels import BY_NAME, KERNELS
from race_world import run

from pkb.problems import get
from pkb.problems.base import DTYPES
from pkb.problems.draw import Draw, GroupRef
from pkb.rank.emulate.cuda import wanted
from pkb.rank.emulate.races.recording import recorded_calls
from pkb.rank.emulate.triton_interpreter import mend_bfloat16

CALLS = 3
WORLDS = (2, 3, 4, 8)
LATE_S = 0.003
race_world.LIMIT_S = 300.0  # for eight ranks in an interpreter on two cores
NOT_HERE = {
    "all_reduce_cpp.py": "what C++ on the host does to memory is not recorded",
    "cpp_built_at_run_time.py": "as above",
    "cpp_with_options.py": "as above",
    "all_reduce_slow.py": "slow on purpose",
    "all_reduce_cuda_flags.py": "needs the build's cache of options",
}


def files() -> list[Path]:
    examples = ROOT / "src" / "pkb" / "generate" / "examples"
    return [*sorted(examples.glob("*/*.py")), *sorted((ROOT / "tests" / "adversaries" / "honest").glob("*.py"))]


def judge(path: Path, world: int, seed: int) -> dict[str, object]:
    """One trace of an honest file. From the second seed on another rank comes late in each call."""
    text = path.read_text()
    problem, dtype = get(problem_of(path)), DTYPES[header(text, "dtype") or "bf16"]

    def program(rank: int) -> bytes:
        solution = recorded_calls(load(path).solution)
        for call in range(CALLS):
            cpu = torch.device("cpu")
            draw = Draw(b"0" * 16, call, rank, world, problem.sizes["tiny"], dtype, cpu, problem.layout)
            values = [dist.group.WORLD if isinstance(v, GroupRef) else v for v in problem.inputs(draw).values()]
            if seed > 1 and rank == (seed + call) % world:
                time.sleep(LATE_S)
            solution(*values)
        return b""

    ran = run(program, world=world, seed=seed, cuda=text if wanted.wanted(text) else "")
    report = ran.report
    cut = "the trace is broken or cut short" if report["broken"] or report["truncated"] else ""
    return {
        "events": report["events"], "trouble": cut or ran.trouble[-600:],
        "kinds": sorted(ran.kinds), "findings": report["findings"][:3],
    }  # fmt: skip


def kernel_trace(built: mutants.Built, world: int, seed: int) -> dict[str, object]:
    found, _ = mutants.row(built, None, world=world, seeds=[seed])
    return {"events": found.events, "trouble": found.trouble, "kinds": sorted(found.kinds), "findings": []}


def traces(options: argparse.Namespace, known: set[tuple[str, int, int]]) -> Iterator[dict[str, object]]:
    """Those that are not known yet."""
    names = [path.relative_to(ROOT).as_posix() for path in files() if path.name not in NOT_HERE]
    for name in options.names or [*(f"solution {kernel.name}" for kernel in KERNELS), *names]:
        built = None
        for world, seed in product(options.world or WORLDS, range(1, options.seeds + 1)):
            if (name, world, seed) in known:
                continue
            if name.startswith("solution "):
                built = built or mutants.build(BY_NAME[name.removeprefix("solution ")])
                found = kernel_trace(built, world, seed)
            else:
                found = judge(ROOT / name, world, seed)
            yield {"name": name, "world": world, "seed": seed, **found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", help="files from the root of the repository, or `solution NAME` of kernels.py"
    )
    parser.add_argument("--world", type=int, action="append", help=f"ranks; {WORLDS}, if no number is given")
    parser.add_argument("--seeds", type=int, default=3, help="traces of each")
    parser.add_argument("--out", type=Path, help="lines of JSON are added to it, and not made twice")
    options = parser.parse_args()
    mend_bfloat16()
    lines = options.out.read_text().splitlines() if options.out and options.out.exists() else []
    before = [one for one in map(json.loads, lines) if "did not end" not in one["trouble"]]  # those are run again
    bad = [one for one in before if one["kinds"] or one["trouble"]]
    for one in traces(options, {(line["name"], line["world"], line["seed"]) for line in before}):
        print(json.dumps(one), flush=True)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(one) + "\n")
        if one["kinds"] or one["trouble"]:
            bad.append(one)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
