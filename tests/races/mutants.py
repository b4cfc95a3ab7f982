"""Runs mutants of our kernels on the race detector, and prints a table.

python tests/races/mutants.py --kernel "01 one-shot" --world 3
python tests/races/mutants.py --honest --world 8
"""

import argparse
import ctypes
import json
import time
import types
from collections.abc import Iterator
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


def run_mutant(built: Built, number: int, *, world: int, seed: int = 1, recorded: bool = True) -> tuple[Ran, set[int]]:
    """What was found, and the numbers of the mutants whose place was come to. Number 0 is the honest kernel."""
    kernel, problem = built.kernel, get(built.kernel.problem)
    size = problem.sizes[kernel.size] if isinstance(kernel.size, str) else kernel.size

    def program(rank: int) -> bytes:
        from pkb.rank.emulate.cuda.device import gpu
        from pkb.rank.emulate.cuda.kernels import EmulatedModule
        from pkb.rank.emulate.races.recording import recorded_calls

        if number:  # lines are of no interest, and to look them up takes most of the time
            recorder._name_sites = lambda: None
        gpu()
        module = EmulatedModule(built.artifact.path.stem, built.artifact)
        ctypes.c_int.in_dll(module._library, "pkb_chosen").value = number
        pkb.kit.compile = lambda *arguments, **options: module  # type: ignore[assignment, misc]
        candidate = types.ModuleType("candidate")
        exec(compile(built.text, str(kernel.path), "exec"), candidate.__dict__)
        solution = recorded_calls(candidate.solution) if recorded else candidate.solution
        for call in range(kernel.calls):
            draw = Draw(b"0" * 16, call, rank, world, size, DTYPES[kernel.dtype], torch.device("cpu"), problem.layout)
            values = [dist.group.WORLD if isinstance(v, GroupRef) else v for v in problem.inputs(draw).values()]
            solution(*values)
        return bytes((ctypes.c_ubyte * MOST).in_dll(module._library, "pkb_reached"))

    ran = run(program, world=world, seed=seed, cuda="__global__", nvls=kernel.nvls, recorded=recorded)
    return ran, {n for said in ran.said for n, seen in enumerate(said) if seen}


@dataclass(frozen=True)
class Row:
    kernel: str
    mutant: str
    text: str
    kinds: tuple[str, ...]
    trouble: str


def rows(kernel: Kernel, *, world: int, seeds: int = 1) -> Iterator[Row]:
    built = build(kernel)
    honest, reached = run_mutant(built, 0, world=world)
    yield Row(kernel.name, "honest", "", tuple(sorted(honest.kinds)), honest.trouble)
    for mutant in built.mutants:
        if mutant.number in reached:
            kinds: set[str] = set()
            trouble = ""
            for seed in range(1, seeds + 1):
                ran, _ = run_mutant(built, mutant.number, world=world, seed=seed)
                kinds |= ran.kinds
                trouble = trouble or ran.trouble
                if kinds:
                    break
            yield Row(
                kernel.name,
                mutant.name,
                mutant.text,
                tuple(sorted(kinds)),
                trouble.strip().splitlines()[-1] if trouble else "",
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernel", action="append")
    parser.add_argument("--world", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--honest", action="store_true")
    parser.add_argument("--bare", action="store_true", help="not recorded: what is reached, and how long it takes")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    for name in options.kernel or [kernel.name for kernel in KERNELS]:
        began = time.monotonic()
        if options.honest or options.bare:
            built = build(BY_NAME[name])
            built_s = time.monotonic() - began
            ran, reached = run_mutant(built, 0, world=options.world, recorded=not options.bare)
            for finding in ran.report.get("findings", [])[:3]:
                print(json.dumps(finding), flush=True)
            print(
                f"{name}: {sorted(ran.kinds)} {ran.trouble} {len(reached)} reached, build {built_s:.1f} s, "
                f"run {time.monotonic() - began - built_s:.1f} s, "
                f"events {ran.report.get('events')}, broken {ran.report.get('broken')} {ran.report.get('reason')}",
                flush=True,
            )
            continue
        for row in rows(BY_NAME[name], world=options.world, seeds=options.seeds):
            print(f"{row.kernel} | {row.mutant} | {', '.join(row.kinds) or '-'} | {row.trouble}", flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(vars(row)) + "\n")


if __name__ == "__main__":
    main()
