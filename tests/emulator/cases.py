"""What is run: a solution, ranks, calls of several shapes and dtypes one after another. And how a rank runs it."""

import copy
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from emulate import Emulator, LaunchFailed, become_a_rank, edited, load_solution, replay, with_constants

from pkb.problems import get
from pkb.problems.base import DTYPES, Problem
from pkb.problems.compare import Context
from pkb.problems.draw import Draw, GroupRef
from pkb.rank.comparison.truth import compare_trees, widen
from pkb.rank.trees import describe

SOLUTIONS = Path(__file__).parents[2] / "solutions"
Edits = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Case:
    problem: int
    world: int
    sizes: Sequence[str | Mapping[str, int]]
    """Names of the problem's sizes, or sizes of our own; each call takes one at random."""
    dtypes: Sequence[str] = ("bf16",)
    calls: int = 6
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Of the solution's module: small ones make a small tensor take many turns."""
    edits: Edits = ()
    """Other changes to its text."""
    header_edits: Mapping[str, Edits] = field(default_factory=dict)
    """Changes to the kit's device headers, by name."""
    resident: int = 2
    """Blocks that run at the same time."""
    multicast: bool = False
    """With an emulated NVSwitch."""
    nvls: str = ""
    """The environment's PKB_NVLS."""
    runs: str = ""
    """A kernel whose name begins so must run, so that a case cannot pass by another way."""
    replayed: bool = False
    """Each call after the first with the same sizes replays its launches on new data, as a CUDA graph would."""
    failing: bool = False
    """Launches fail on one rank now and then, and the call is made again there."""
    fewer_resident: int = 0
    """So many fewer blocks run at once on rank 1."""
    file: str = ""
    """In place of our own solution."""
    change: str = ""
    """Name of a function of changes.py that makes the drawn arguments harder."""
    same_bits: bool = False
    """All ranks must return the same bits."""
    late: float = 0.3
    """How often a rank comes late to a call."""
    seed: int = 1

    @property
    def name(self) -> str:
        way = "-".join(
            [f"{self.problem:02d}", f"{self.world}ranks", *self.dtypes]
            + (["switch"] if self.multicast else [])
            + ([f"nvls{self.nvls}"] if self.nvls else [])
            + (["replayed"] if self.replayed else [])
            + (["failing"] if self.failing else [])
            + (["uneven"] if self.fewer_resident else [])
            + ([self.change] if self.change else [])
        )
        return way.replace(" ", "_")


def run_case(rank: int, size: int, case: Case, build: str, symmetric: str, limit_s: float) -> str:
    """What a rank found: nothing ("") or what is wrong. All calls are made before any result is looked at, so that ranks
    run apart as far as the kernels let them."""
    torch.set_num_threads(1)
    # Memory of torch.empty is NaN: what a kernel leaves out shows. (The public function imports a compiler, 1.6 s a rank.)
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    os.environ["PKB_NVLS"] = case.nvls
    resident = case.resident - (case.fewer_resident if rank == 1 else 0)
    become_a_rank(Path(symmetric))
    seed = case.seed * 1009 + rank * 101
    emulator = Emulator(Path(build), resident=resident, edits=case.header_edits, seed=seed, limit_s=limit_s)
    path = Path(case.file) if case.file else next(SOLUTIONS.glob(f"{case.problem:02d}_*_cuda.py"))
    text = edited(with_constants(path.read_text(), case.constants), case.edits)
    module = load_solution(text, emulator=emulator, multicast=case.multicast)
    dist.barrier()  # building took its time
    problem = get(case.problem)
    alike, own = random.Random(case.seed), random.Random(case.seed * 64 + rank)
    draws = [_draw(problem, case, call, rank, alike) for call in range(case.calls)]
    results = []
    graphs: dict[str, Any] = {}
    for number, draw in enumerate(draws):
        arguments = _arguments(problem, draw, case.change)
        given = {name: value if case.replayed else _moved(value, own) for name, value in arguments.items()}
        if own.random() < case.late:
            time.sleep(own.random() * 0.004)
        if case.replayed:
            results.append(_replayed(graphs, emulator, module, arguments))
            continue
        emulator.fails_next = case.failing and own.random() < 0.4
        try:
            result = module.solution(*given.values())
        except LaunchFailed:
            result = module.solution(*given.values())
        if problem.returns_input and any(result is value for value in given.values()):
            result = result.clone()  # before it is spoilt
        results.append(result)
        for name, value in given.items():
            if isinstance(value, torch.Tensor):
                if not torch.equal(_bits(value), _bits(arguments[name])):
                    return f"call {number} changed its argument {name}"
                value.fill_(float("nan") if value.is_floating_point() else 77)
    dist.barrier()
    if not any(name.startswith(case.runs) for name in emulator.launched):
        return f"no kernel {case.runs!r}, but {sorted(emulator.launched)}"
    if case.replayed and len(graphs) == case.calls:
        return "no call was replayed"
    return _compare(problem, case, draws, results, rank)


def _replayed(graphs: dict[str, Any], emulator: Emulator, module: Any, arguments: dict[str, Any]) -> Any:
    tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
    others = [value for value in arguments.values() if not isinstance(value, torch.Tensor)]
    key = repr((others, [(tensor.shape, tensor.dtype) for tensor in tensors]))
    if key in graphs:
        kept, result, recording = graphs[key]
        for old, new in zip(kept, tensors, strict=True):
            old.copy_(new)
        replay(recording)
    else:
        emulator.recording = recording = []
        result = module.solution(*arguments.values())
        emulator.recording = None
        graphs[key] = tensors, result, recording
    return copy.deepcopy(result)


def _draw(problem: Problem, case: Case, call: int, rank: int, alike: random.Random) -> Draw:
    sizes = [problem.sizes[size] if isinstance(size, str) else size for size in case.sizes]
    # The first calls go through all sizes and dtypes, the others jump between them.
    size = sizes[call % len(sizes)] if call < len(sizes) else alike.choice(sizes)
    dtype = DTYPES[case.dtypes[call % len(case.dtypes)]]
    secret = case.seed.to_bytes(16, "little")
    return Draw(secret, call, rank, case.world, size, dtype, torch.device("cpu"), problem.layout)


def _arguments(problem: Problem, draw: Draw, change: str) -> dict[str, Any]:
    drawn = problem.inputs(draw)
    if change:
        import changes

        drawn = getattr(changes, change)(drawn, draw)
    return {name: dist.group.WORLD if isinstance(value, GroupRef) else value for name, value in drawn.items()}


def _moved(value: Any, own: random.Random) -> Any:
    """A copy of a tensor, often at an address that is aligned to its elements only; other values as they are."""
    if not isinstance(value, torch.Tensor):
        return copy.deepcopy(value) if isinstance(value, list) else value
    offset = own.choice([0, 0, 1, 3])
    place = torch.empty(value.numel() + offset, dtype=value.dtype)[offset:].view(value.shape)
    return place.copy_(value)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def _compare(problem: Problem, case: Case, draws: list[Draw], results: list[Any], rank: int) -> str:
    """The first thing that is wrong with this rank's results. References are collective: all ranks go through all calls."""
    wrong = ""
    for number, (draw, result) in enumerate(zip(draws, results, strict=True)):
        arguments = _arguments(problem, draw, case.change)
        truth = native = problem.reference(*_arguments(problem, draw, case.change).values())
        if problem.truth == "float64":
            truth = problem.reference(*(widen(value) for value in _arguments(problem, draw, case.change).values()))
        found = ""
        if not _same_structure(native, result):
            found = "another structure, shape or dtype than the reference's"
        else:
            verdict = compare_trees(
                problem,
                {"returned": truth, "mutated": {}},
                [tensor.dtype for tensor in describe(native)[1]],
                {"returned": result, "mutated": {}},
                context=Context(arguments, rank, case.world, draw.dtype),
                upstream=False,
                others={},
            )
            if not verdict.ok:
                found = str(verdict)
        if case.same_bits:
            mine = torch.cat([_bits(tensor) for tensor in describe(result)[1]])
            gathered = [torch.empty_like(mine) for _ in range(case.world)]
            dist.all_gather(gathered, mine)
            if not all(torch.equal(other, mine) for other in gathered):
                found = found or "ranks hold different bits"
        if found:
            wrong = wrong or f"call {number}, {dict(draw.size)}, {draw.dtype}: {found}"
    return wrong


def _same_structure(native: Any, result: Any) -> bool:
    ours, theirs = describe(native)[1], describe(result)[1]
    return type(native) is type(result) and [(t.shape, t.dtype) for t in ours] == [(t.shape, t.dtype) for t in theirs]
