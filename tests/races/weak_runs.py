"""Runs kernels, their mutants and whole files in weak execution, and compares with the truth. Prints a line for each.

python tests/races/weak_runs.py --kernel "01 two-shot" --world 3            # its mutants
python tests/races/weak_runs.py --honest --world 2 --world 8                # kernels as they are
python tests/races/weak_runs.py --files --world 3                           # solutions, examples, honest adversaries
"""

import argparse
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # some references import it, which cannot be done while calls are recorded
import torch.distributed as dist
from candidate_files import ROOT, header, load, problem_of
from kernels import BY_NAME, KERNELS, SOLUTIONS
from mutants import Built, Solution, build, load_mutant
from race_world import run

from pkb.problems import get
from pkb.problems.base import DTYPES, Problem, Size
from pkb.problems.compare import Context
from pkb.problems.draw import Draw, GroupRef
from pkb.rank.comparison.truth import compare_trees, outcome, widen
from pkb.rank.trees import describe


@dataclass(frozen=True)
class Weakly:
    """What came of a run."""

    wrong: tuple[str, ...]
    """What differs from the truth, by call and rank."""
    trouble: str
    reached: frozenset[int] = frozenset()

    @property
    def words(self) -> str:
        return self.trouble.strip().splitlines()[-1][:100] if self.trouble else "; ".join(self.wrong[:2]) or "right"


def solution_weakly(
    load: Callable[[], tuple[Solution, Callable[[], bytes]]], problem: Problem, size: Size, dtype: str, *, world: int,
    seed: int, calls: int, cuda: str, nvls: bool = False, weak: bool = True,
) -> Weakly:  # fmt: skip
    """`load` is called in each rank, and gives what is called and what is reported of it afterwards."""

    def program(rank: int) -> bytes:
        from pkb.rank.emulate.races.recording import recorded_calls

        solution, more = load()
        recorded = recorded_calls(solution)
        wrong, got = [], []
        draws = [
            Draw(b"0" * 16, call, rank, world, size, DTYPES[dtype], torch.device("cpu"), problem.layout)
            for call in range(calls)
        ]

        def fresh(draw: Draw) -> dict[str, Any]:
            drawn = problem.inputs(draw).items()
            return {name: dist.group.WORLD if isinstance(value, GroupRef) else value for name, value in drawn}

        arguments = [fresh(draw) for draw in draws]  # before the first call: ranks are not kept in step by them
        for values in arguments:
            tree = outcome(recorded, problem, values)
            torch.cuda.synchronize()
            got.append(copy.deepcopy(tree))
        exact = problem.exact or problem.reference
        for call, draw in enumerate(draws):
            native = outcome(exact, problem, fresh(draw))
            dtypes = [tensor.dtype for tensor in describe(native)[1]]
            truth = native if problem.truth == "native" else outcome(exact, problem, widen(fresh(draw)))
            context = Context(fresh(draw), rank, world, DTYPES[dtype])
            found = compare_trees(problem, truth, dtypes, got[call], context=context, upstream=False, others={})
            if found.difference is not None:
                wrong.append(f"rank {rank}, call {call}: {found.difference.output} {found.difference.what}"[:200])
        return json.dumps([wrong, more().hex()]).encode()

    ran = run(program, world=world, seed=seed, cuda=cuda, nvls=nvls, weak=weak)
    if ran.trouble:
        return Weakly((), ran.trouble)
    said = [json.loads(each) for each in ran.said]
    reached = {n for _, text in said for n, seen in enumerate(bytes.fromhex(text)) if seen}
    return Weakly(tuple(line for lines, _ in said for line in lines), "", frozenset(reached))


def kernel_weakly(built: Built, number: int, *, world: int, seed: int = 1, weak: bool = True) -> Weakly:
    """Mutant 0 is the kernel itself."""
    kernel, problem = built.kernel, get(built.kernel.problem)

    size = problem.sizes[kernel.size] if isinstance(kernel.size, str) else kernel.size
    return solution_weakly(
        lambda: load_mutant(built, number, names=False), problem, size, kernel.dtype, world=world, seed=seed,
        calls=kernel.calls, cuda="__global__", nvls=kernel.nvls, weak=weak,
    )  # fmt: skip


def files() -> list[Path]:
    """Honest CUDA: our solutions, the examples that models are shown, adversaries."""
    found = [
        *sorted(SOLUTIONS.glob("*_cuda.py")),
        *sorted((ROOT / "src" / "pkb" / "generate" / "examples").glob("cuda*/*.py")),
        *sorted((ROOT / "tests" / "adversaries" / "gpu").glob("honest_*.py")),
        *sorted((ROOT / "tests" / "adversaries" / "honest").glob("*.py")),
    ]
    held = {path: path.read_text() for path in found}
    return [path for path, text in held.items() if "__global__" in text and path.stem not in NOT_HERE]


NOT_HERE = {
    "honest_cuda_ipc_in_an_extension": "CUDA IPC is not emulated",
    "all_reduce_cuda_flags": "needs the build's cache of options",
}


def file_weakly(path: Path, *, world: int, seed: int = 1, calls: int = 3, nvls: bool = False) -> Weakly:
    text = path.read_text()
    problem = get(problem_of(path))
    return solution_weakly(
        lambda: (load(path).solution, bytes), problem, problem.sizes["tiny"],
        header(text, "dtype") or problem.default_dtype, world=world, seed=seed, calls=calls, cuda=text, nvls=nvls,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", action="append", help="by name, as in kernels.py; all, if none is named")
    parser.add_argument("--only", default="", help="mutants, or files, whose name holds this")
    parser.add_argument("--world", type=int, action="append")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--honest", action="store_true")
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--strong", action="store_true", help="recorded as usual: what the ordinary run gives")
    options = parser.parse_args()
    seeds, worlds = range(1, options.seeds + 1), options.world or [3]
    if options.files:
        for path in (path for path in files() if options.only in str(path)):
            file_weakly(path, world=1, calls=1)  # builds it, once and not in every rank
            for world in worlds:
                for seed in seeds:
                    print(f"{path.stem} | {world} | {file_weakly(path, world=world, seed=seed).words}", flush=True)
        return
    for name in options.kernel or [kernel.name for kernel in KERNELS]:
        built = build(BY_NAME[name])
        for world in worlds:
            for seed in seeds:
                honest = kernel_weakly(built, 0, world=world, seed=seed, weak=not options.strong)
                print(f"{name} | {world} | honest | {honest.words}", flush=True)
            for mutant in built.mutants if not options.honest else ():
                if mutant.number in honest.reached and options.only in mutant.name:
                    for seed in seeds:
                        found = kernel_weakly(built, mutant.number, world=world, seed=seed, weak=not options.strong)
                        print(f"{name} | {world} | {mutant.name} | {found.words}", flush=True)


if __name__ == "__main__":
    main()
