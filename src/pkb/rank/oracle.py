"""The oracle's side of a rank: draws arguments from the secret, runs the reference, compares.

It never loads candidate code; the bytes of a candidate's outputs are all it ever sees of it.
"""

import os
import resource
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from pkb.problems.base import DTYPES, Problem
from pkb.problems.compare import Context
from pkb.problems.draw import Arguments as Drawn
from pkb.problems.draw import Draw, GroupRef, Value
from pkb.problems.registry import default_registry
from pkb.rank.comparison import stock
from pkb.rank.comparison.null_candidates import lint_case
from pkb.rank.comparison.truth import compare_trees, outcome, read_output, widen
from pkb.rank.execute import Arguments, Batch
from pkb.rank.kept_files import KeptFiles
from pkb.rank.server import Rank
from pkb.rank.trees import copied, describe, tensors_in
from pkb.types.protocol.commands import (
    ORACLE_COMMANDS,
    CheckBaseline,
    CheckExact,
    Command,
    Compare,
    DrawArguments,
    DrawOnly,
    DrawSpec,
    Drop,
    FindTruth,
    Forget,
    Lint,
    LookForCompany,
    MeasureMemory,
    Open,
    Release,
    RunBatch,
    Wake,
)
from pkb.types.protocol.limits import clean
from pkb.types.protocol.replies import (
    ArgumentsReply,
    BatchReport,
    Company,
    Comparison,
    Difference,
    Done,
    LintRows,
    MemoryPeak,
    Opened,
    Reply,
    TruthSizes,
    facts,
)
from pkb.types.protocol.settings import OracleOptions


@dataclass(frozen=True)
class Truth:
    tree: Any
    dtypes: list[torch.dtype]
    """Of the tensors as the reference returns them for these arguments, before widening."""
    output_bytes: int
    """Of those tensors."""


SCALARS_TEXT = 200
UNUSED_BYTES = 1 << 29
"""What a rank's allocator may keep unused while truths are at hand; more goes back to the driver, for the candidate's ranks."""


COMPANY_LIMIT_S = 60.0


class LazyArguments(Mapping[str, Value]):
    """A call's arguments, drawn when one is first needed: few rules need them, and at production sizes they are gigabytes."""

    def __init__(self, draw: Callable[[], Drawn]) -> None:
        self._draw = draw

    @cached_property
    def _values(self) -> Drawn:
        return self._draw()

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class OracleRank(Rank):
    commands = ORACLE_COMMANDS

    def open(self) -> None:
        super().open()
        if self.config.device == "cuda":
            self.status.step("starting: meeting the other ranks in symmetric memory", waiting=True)
            self.device.open_barrier()  # type: ignore[attr-defined]
        options = self.config.side.options
        assert isinstance(options, OracleOptions)
        folder = options.problems_folder
        self.registry = default_registry().with_folder(Path(folder) if folder else None)
        self.secret = bytes.fromhex(options.secret)
        self.draws: dict[int, DrawSpec] = {}
        self.keys: dict[int, bytes] = {}
        """Of calls whose arguments were sealed."""
        self.truths: dict[int, Truth] = {}
        self.files = KeptFiles()
        self.warm_bytes = 0
        """What the allocator held after the last batch, so that it can hold as much again before the next."""

    def handle(self, command: Command[Reply], fds: list[int]) -> Reply | None:
        match command:
            case Open():
                self.make_groups(command.name, command.layout)
                return Opened(facts(self.device.facts()))
            case DrawArguments():
                self._send_arguments(command)
                return None
            case DrawOnly():
                self.arguments[command.slot] = self._as_handed_over(self._draw(command.slot, command.spec))
            case FindTruth():
                return self.find_truths(command.slots)
            case RunBatch():
                return self._run(command)
            case Compare():
                return self.compare(command, fds[0])
            case Wake():
                self.wake()
            case Release():
                self.arguments.clear()
                self.seals.drop()
                self.batch = Batch()
            case Forget():
                del self.truths[command.slot]
                self._trim()
            case LookForCompany():
                return self._look_for_company()
            case Drop():
                self.draws.clear()
                self.keys.clear()
                self.truths.clear()
                self.drop(keep_memory=command.keep_memory)
                self._warm_again(keep_memory=command.keep_memory)
            case MeasureMemory():
                return MemoryPeak(self._peak_bytes(reset=command.reset))
            case Lint():
                return LintRows(tuple(lint_case(self, command.spec)))
            case CheckBaseline():
                return stock.check_baseline(self, command)
            case CheckExact():
                return stock.check_exact(self, command)
            case _:
                from pkb.rank.probe import commands  # an evaluation does without it

                return commands.answer(self, command)
        return Done()

    def _run(self, command: RunBatch) -> BatchReport:
        slots = command.schedule.slots
        problem = self._problem(self.draws[slots[0]])
        self.mutates, self.returns_input = tuple(problem.mutates), problem.returns_input
        if command.schedule.empty:
            return self._run_empty(command)
        self.batch = Batch()  # what it holds, if these calls are made once more, would take the room of theirs
        report = self.run(problem.function(command.function), command)
        if command.schedule.aligned or not command.schedule.digests:
            self.batch = (
                Batch()
            )  # nobody asks for the reference's own outputs, but an empty batch of the same slots does
        if self.config.device == "cuda":
            self.warm_bytes = torch.cuda.memory_reserved()
        return report

    def _run_empty(self, command: RunBatch) -> BatchReport:
        """What the window costs: arguments of the same sizes are opened and outputs of the same sizes committed to, and no
        call is made between. To open what is open seals it, so that the same calls can be made once more."""
        slots = command.schedule.slots
        outputs = iter([self.batch.outputs[slot]["returned"] for slot in slots])
        self.seals.open_again(slots)
        report = self.run(lambda *_: next(outputs), command)
        self.seals.open_again(slots)
        return report

    def _look_for_company(self) -> Company:
        """One rank at a time where ranks share a device: they would be each other's company."""
        seen, shared = Company(1.0, 0.0), self.config.side.shares_device
        for rank in range(self.config.world_size):
            self.barrier.wait(timeout_s=COMPANY_LIMIT_S)
            if rank == self.config.rank or not shared:
                # Sides that share a GPU are clients of one MPS server, which does not time-slice them.
                seen = self.device.company(long=not shared)
            if not shared:
                break
        self.barrier.wait(timeout_s=COMPANY_LIMIT_S)
        return seen

    def _peak_bytes(self, *, reset: bool) -> int:
        """Peak bytes of tensors since the last reset; on a CPU, where nobody counts, the peak of the whole process."""
        if self.config.device != "cuda":
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if reset:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_allocated()

    def _trim(self) -> None:
        """Give unused memory back to the driver, if it is much: both sides may share one GPU, and neither sees what the
        other's allocators keep for later."""
        if self.config.device == "cuda" and torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > UNUSED_BYTES:
            torch.cuda.empty_cache()

    def _warm_again(self, *, keep_memory: bool) -> None:
        """Leave the allocator as the last timed batch left it: what a truth made it give back would otherwise be asked for
        again inside the next timed call, and the reference would look slower than it is."""
        if not keep_memory:
            self.warm_bytes = 0
        elif self.config.device == "cuda" and (missing := self.warm_bytes - torch.cuda.memory_reserved()) > 0:
            torch.empty(missing, dtype=torch.uint8, device=self.device.torch_device)

    def _problem(self, spec: DrawSpec) -> Problem:
        problem = self.registry.get(spec.problem)
        return replace(problem, mutates={}) if spec.as_published else problem

    def draw_arguments(self, spec: DrawSpec, call: int) -> Drawn:
        """This rank's arguments of the call with that number; process groups are still placeholders."""
        problem = self._problem(spec)
        self.groups = self.layouts[problem.layout]
        draw = Draw(
            secret=self.secret, call=call, rank=self.config.rank, world_size=self.config.world_size,
            size=problem.sizes[spec.size], dtype=DTYPES[spec.dtype], device=self.device.torch_device,
            layout=problem.layout, kind=spec.kind, even=spec.even or spec.as_published,
        )  # fmt: skip
        return problem.arguments(draw, as_published=spec.as_published)

    def with_groups(self, values: Any) -> Any:
        if isinstance(values, GroupRef):
            return self.groups[values.axis]
        if isinstance(values, dict):
            return {key: self.with_groups(value) for key, value in values.items()}
        if isinstance(values, list | tuple):
            return type(values)(self.with_groups(value) for value in values)
        return values

    def _as_handed_over(self, drawn: Drawn) -> Arguments:
        """Contiguous, as whoever is handed arguments gets them: other strides are other work."""
        if all(tensor.is_contiguous() for tensor in tensors_in(drawn)):
            handed: Arguments = self.with_groups(drawn)
        else:
            handed = copied(drawn, group=self.group)
        return handed

    def _draw(self, slot: int, spec: DrawSpec) -> Drawn:
        self.draws[slot] = spec
        return self.draw_arguments(spec, slot)

    def _send_arguments(self, command: DrawArguments) -> None:
        """Sealed, and what is kept is sealed too: both sides run through the same window."""
        slot, key = command.slot, bytes.fromhex(command.key)
        values = self._draw(slot, command.spec)
        description, _ = describe(values)
        sealed = copied(values, group=self.group)
        del values
        self.keys[slot] = key
        self.seals.seal(slot, sealed, key)
        fd = self.files.pack(tensors_in(sealed))
        if command.keep:
            self.arguments[slot] = sealed
        else:
            self.seals.forget(slot)
        try:
            self.channel.send(ArgumentsReply(slot, description), [fd])
        finally:
            os.close(fd)

    def find_truths(self, slots: tuple[int, ...]) -> TruthSizes:
        for slot in slots:
            self.truths[slot] = self._truth(slot)
        known = [self.truths[slot] for slot in slots]
        return TruthSizes(
            output_bytes=max((truth.output_bytes for truth in known), default=0),
            truth_bytes=max((_bytes(truth.tree) for truth in known), default=0),
        )

    def _truth(self, slot: int) -> Truth:
        """What every correct solution must give, from arguments drawn anew so that no earlier call has touched them."""
        spec = self.draws[slot]
        return self.truth_of(
            self._problem(spec), lambda: self.with_groups(self.draw_arguments(spec, slot)), upstream=spec.upstream
        )

    def truth_of(self, problem: Problem, fresh: Callable[[], Arguments], *, upstream: bool) -> Truth:
        """At any time it holds one set of arguments and its result: in float64 those are four times what a call takes. Where
        the problem has an `exact` truth, the reference is not run at all: it may not fit."""
        self._trim()
        by_blocks = problem.exact if problem.exact is not None and not upstream else problem.reference
        native = outcome(by_blocks, problem, fresh())
        dtypes = [tensor.dtype for tensor in describe(native)[1]]
        output_bytes = _bytes(native)
        if problem.truth == "native" or upstream:
            self._trim()
            return Truth(native, dtypes, output_bytes)
        del native
        self._trim()
        values = fresh()
        tree = outcome(by_blocks, problem, {name: widen(values.pop(name)) for name in list(values)})
        self._trim()
        return Truth(tree, dtypes, output_bytes)

    def compare(self, command: Compare, fd: int) -> Comparison:
        slot = command.slot
        spec, truth = self.draws[slot], self.truths[slot]
        dtypes = None if spec.as_published else truth.dtypes
        output, difference = read_output(command.tree, fd, truth.tree, dtypes, device=self.device.torch_device)
        context = Context(
            arguments=LazyArguments(lambda: self.draw_arguments(spec, slot)), rank=self.config.rank,
            world_size=self.config.world_size, dtype=DTYPES[spec.dtype],
        )  # fmt: skip
        if difference is not None:
            scalars = _scalars(context.arguments)
            return Comparison(None, Difference(difference.where, difference.words, difference.kind, scalars=scalars))
        others = {
            other - slot: t.tree
            for other, t in self.truths.items()
            if other != slot and self.draws[other].size == spec.size
        }
        result = compare_trees(
            self._problem(spec),
            truth.tree,
            dtypes,
            output,
            context=context,
            upstream=spec.upstream,
            others=_same_structure(others, truth.tree),
        )
        if result.difference is not None:
            result = replace(result, difference=replace(result.difference, scalars=_scalars(context.arguments)))
        return replace(result, digest=self.seals.digest(output, self.keys.get(slot, b"")))


def _bytes(tree: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in describe(tree)[1])


def _same_structure(others: dict[int, Any], truth: Any) -> dict[int, Any]:
    """Only the same output of another call can be here in place of this call's."""
    dtypes = [tensor.dtype for tensor in describe(truth)[1]]
    return {slot: tree for slot, tree in others.items() if [t.dtype for t in describe(tree)[1]] == dtypes}


def _scalars(arguments: Mapping[str, Value]) -> str:
    """The arguments that are numbers, truth values or words: `causal=True, scale=0.125`."""
    shown = (f"{name}={value!r}" for name, value in arguments.items() if isinstance(value, bool | int | float | str))
    return clean(", ".join(shown), SCALARS_TEXT)
