"""Runs mutants of our kernels on the race detector, and prints a table.

    python tests/races/mutants.py --kernel "01 one-shot" --world 3
    python tests/races/mutants.py --kernel 21 --only "wait removed"

With `--out` it can be stopped and begun again: what the file has is not run again.
"""

import argparse
import ctypes
import json
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from kernels import BY_NAME, KERNELS, Kernel
from race_world import Ran, run
from schemata import MOST, Mutant, Schemata

import pkb.kit
import pkb.kit.cuda
import pkb.kit.emulated.recipe as recipes
from pkb.problems import get
from pkb.problems.base import DTYPES
from pkb.problems.draw import Draw, GroupRef
from pkb.rank.emulate import recorder

Solution = Callable[..., Any]
Known = frozenset[tuple[str, str, int]]
"""Kernels, mutants and numbers of ranks that were run before."""


@dataclass(frozen=True)
class Built:
    kernel: Kernel
    text: str
    artifact: Any
    mutants: list[Mutant]
    options: tuple[str, ...]


class _Asked(BaseException):
    """Carries what a solution wants to compile."""


def build(kernel: Kernel) -> Built:
    """One build with all mutants of a kernel in it."""
    text = kernel.text()

    def ask(source: str, *, name: str = "kernel", options: Any = (), arch: Any = None) -> Any:
        raise _Asked(source, name, tuple(options))

    try:
        with mock.patch.object(pkb.kit, "compile", ask):
            exec(compile(text, str(kernel.path), "exec"), types.ModuleType("candidate").__dict__)
        raise ValueError(f"{kernel.path} compiles nothing")
    except _Asked as asked:
        source, name, options = asked.args
    schemata = Schemata(pkb.kit.cuda._headers(), source, name=f"{name}.cu")
    with mock.patch.object(recipes, "_headers", return_value=schemata.headers):
        recipes.runtime_recipe().obtain()
        artifact = recipes.module_recipe(schemata.source, name=name, options=options).obtain()
    return Built(kernel, text, artifact, schemata.mutants, options)


def load_mutant(built: Built, number: int, *, names: bool) -> tuple[Solution, Callable[[], bytes]]:
    """In a rank: its function, and what tells afterwards which mutants' places were come to. Without `names` of lines, which
    take most of the time."""
    from pkb.rank.emulate.cuda.device import gpu
    from pkb.rank.emulate.cuda.kernels import EmulatedModule

    if not names:
        recorder._name_sites = lambda: None
    gpu()
    module = EmulatedModule(built.artifact.path.stem, built.artifact)
    ctypes.c_int.in_dll(module._library, "pkb_chosen").value = number
    pkb.kit.compile = lambda *arguments, **options: module  # type: ignore[assignment, misc]
    candidate = types.ModuleType("candidate")
    exec(compile(built.text, str(built.kernel.path), "exec"), candidate.__dict__)
    return candidate.solution, lambda: bytes((ctypes.c_ubyte * MOST).in_dll(module._library, "pkb_reached"))


def run_mutant(built: Built, number: int, *, world: int, seed: int = 1, recorded: bool = True) -> tuple[Ran, set[int]]:
    """What was found, and the numbers of the mutants whose place was come to. Number 0 is the honest kernel."""
    kernel, problem = built.kernel, get(built.kernel.problem)
    size = problem.sizes[kernel.size] if isinstance(kernel.size, str) else kernel.size

    def program(rank: int) -> bytes:
        from pkb.rank.emulate.races.recording import recorded_calls

        solution, reached = load_mutant(built, number, names=not number)
        solution = recorded_calls(solution) if recorded else solution
        for call in range(kernel.calls):
            draw = Draw(b"0" * 16, call, rank, world, size, DTYPES[kernel.dtype], torch.device("cpu"), problem.layout)
            values = [dist.group.WORLD if isinstance(v, GroupRef) else v for v in problem.inputs(draw).values()]
            solution(*values)
        return reached()

    ran = run(program, world=world, seed=seed, cuda="__global__", nvls=kernel.nvls, recorded=recorded)
    return ran, {n for said in ran.said for n, seen in enumerate(said) if seen}


@dataclass(frozen=True)
class Row:
    """What came of one mutant, or of the honest kernel."""

    kernel: str
    mutant: str
    text: str
    kinds: tuple[str, ...]
    trouble: str
    world: int
    seeds: int
    """How many orders of threads were tried: no more once one is reported."""
    events: int

    def line(self) -> str:
        return f"{self.kernel} | {self.world} ranks | {self.mutant} | {', '.join(self.kinds) or '-'} | {self.trouble}"


def row(built: Built, mutant: Mutant | None, *, world: int, seeds: Sequence[int]) -> tuple[Row, set[int]]:
    """Runs one, and says which mutants' places were come to. A trace that is broken or cut short says nothing."""
    kinds: set[str] = set()
    trouble, events, tried = "", 0, 0
    reached: set[int] = set()
    for seed in seeds:
        ran, came = run_mutant(built, mutant.number if mutant else 0, world=world, seed=seed)
        tried, events, reached = tried + 1, events + ran.report["events"], reached | came
        if ran.report["broken"] or ran.report["truncated"]:
            trouble = trouble or f"{ran.report.get('reason') or 'the trace is broken or cut short'}"
            continue
        kinds |= ran.kinds
        trouble = trouble or next(iter(reversed(ran.trouble.strip().splitlines())), "")
        if kinds:
            break
    name, text = (mutant.name, mutant.text) if mutant else ("honest", "")
    found = Row(built.kernel.name, name, text, tuple(sorted(kinds)), trouble, world, tried, events)
    return found, reached


def rows(kernel: Kernel, *, world: int, seeds: int, only: str = "", known: Known = frozenset()) -> Iterator[Row]:
    """Without those that are known. The honest kernel says which mutants there are, so it runs wherever they do."""
    built = build(kernel)
    found, reached = row(built, None, world=world, seeds=[1])
    if (kernel.name, "honest", world) not in known:
        yield found
    for mutant in built.mutants:
        if mutant.number in reached and only in mutant.name and (kernel.name, mutant.name, world) not in known:
            yield row(built, mutant, world=world, seeds=range(1, seeds + 1))[0]


def known_rows(path: Path | None) -> Known:
    if path is None or not path.exists():
        return frozenset()
    lines = map(json.loads, path.read_text().splitlines())
    return frozenset((line["kernel"], line["mutant"], line["world"]) for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", action="append", help="by name, as in kernels.py; all, if none is named")
    parser.add_argument("--only", default="", help="mutants whose name holds this")
    parser.add_argument("--world", type=int, action="append", help="ranks; 3, if no number is given")
    parser.add_argument("--seeds", type=int, default=5, help="orders of threads that are tried until one is reported")
    parser.add_argument("--out", type=Path, help="lines of JSON are added to it")
    options = parser.parse_args()
    known = known_rows(options.out)
    for name in options.kernel or [kernel.name for kernel in KERNELS]:
        for world in options.world or [3]:
            for found in rows(BY_NAME[name], world=world, seeds=options.seeds, only=options.only, known=known):
                print(found.line(), flush=True)
                if options.out:
                    with options.out.open("a") as file:
                        file.write(json.dumps(vars(found)) + "\n")


if __name__ == "__main__":
    main()
