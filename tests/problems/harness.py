"""Checks the reference of a problem against a model of it: the same mathematics, written a second time in one process.

A test file holds the model, which works out from the arguments of all ranks what every rank must return, in float64 and by
other means than the reference, without sending anything. It declares

    class TestModel(ModelTests):
        spec = Spec(13, gemm_allreduce)

and gets the tests below. The reference runs on real ranks (gloo) and is compared with the model by the problem's own rules.
The same rules must then refuse what a wrong kernel would return: zeros, a spoilt element, results of another call, of ranks
that do not communicate, and of the mistakes that the file names. What only one problem has, its file tests by functions of
its own.
"""

import importlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from on_ranks import Arguments, Outputs, Worlds, all_arguments, ready_arguments, run_reference, wide

from pkb.problems import get
from pkb.problems.base import DTYPES, Problem, tensors_in
from pkb.problems.compare import Context, Rule
from world import RankError

Model = Callable[[list[Arguments]], Sequence[Any]]
"""From the arguments of all ranks to the outputs of all ranks: lists of tensors or arrays, or one array where there is one."""
Change = Callable[[Arguments], Arguments]
FEW_NUMBERS = 16


@dataclass(frozen=True)
class Spec:
    """One problem's model, and how its reference is run."""

    number: int
    model: Model
    _: KW_ONLY
    mistakes: Mapping[str, Model] = field(default_factory=dict)
    """What plausible wrong kernels would return."""
    refused: Sequence[tuple[str, Change]] = ()
    """Changes of the arguments that every rank must refuse with a ValueError, and a pattern of its message."""
    worlds: tuple[int, ...] = (2, 4)
    sizes: tuple[str, ...] = ("tiny", "odd")
    dtypes: tuple[str, ...] = ("fp32", "bf16")
    more_cases: tuple[tuple[int, str, str], ...] = ()
    """Numbers of ranks, sizes and dtypes beside the product of the three."""
    calls: tuple[int, ...] = (0, 1, 2)
    results: tuple[torch.dtype | None, ...] = ()
    """Dtypes of outputs that are not the case's, by position."""
    honest: float = 0.8
    """How much of the tolerance the reference may use: an honest result keeps a distance from failing."""
    zeros: float = 3.0
    """By how many tolerances zeros must miss."""
    spoilt: float = 1.5
    """By how many tolerances one element, the largest, that is off by a quarter (an integer: by one) must miss."""
    spoilt_offset: float = 0.0
    """Added to that quarter where tolerances are absolute."""
    every_rank: bool = False
    """Spoils an element on every rank in turn, not only on the rank that has most of them."""
    ordered: bool = False
    """Also refuses a wrong last element and elements in reverse order."""
    same_every_call: bool = False
    """The results of another call may pass, since most of them are the same."""
    silent_raises: bool = False
    """Without communication the reference may raise, or return other shapes: counts no longer fit."""
    returns_arguments: bool = False
    contiguous: bool = True
    mistaken_once: float = 3.0
    """By how many tolerances a mistake must miss in one call at least: a mask is not felt in a call without one."""
    mistaken_always: float = 0.0
    """By how many it must miss in every call."""
    mistake_calls: tuple[int, ...] = (0, 1, 2)
    mistake_cases: Sequence[tuple[int, str, str]] = ((4, "tiny", "bf16"), (4, "tiny", "fp32"))
    widened: bool | None = None
    """Whether the reference is exact on float64 arguments; None: if that is the problem's truth."""
    widened_sizes: tuple[str, ...] = ("tiny", "odd")
    exactness: float = 1e-11
    """Relative error of the widened reference: were anything inside still float32, it would be 1e-7."""
    large_bytes: float = 40e9
    """What the arguments of ranks that share a GPU may take at `paper` and `real`."""

    @cached_property
    def problem(self) -> Problem:
        return get(self.number)

    @property
    def cases(self) -> list[tuple[int, str, str]]:
        product = [(w, size, dtype) for w in self.worlds for size in self.sizes for dtype in self.dtypes]
        found = [*product, *self.more_cases]
        # Three ranks divide little of what two and four do: every problem that runs with three is run with them once.
        if not any(world_size == 3 for world_size, _, _ in found):
            sizes = [size for size in ("odd", "tiny") if self.problem.why_not(size, 3, self.dtypes[0]) is None]
            found += [(3, size, self.dtypes[0]) for size in sizes[:1]]
        return found

    @property
    def is_widened(self) -> bool:
        return self.problem.truth == "float64" if self.widened is None else self.widened

    def arguments(self, world_size: int, size: str, dtype: str, call: int) -> list[Arguments]:
        return all_arguments(self.number, world_size, size, dtype, call)

    def truth(self, ranks: list[Arguments], model: Model | None = None) -> list[Outputs]:
        return [_tensors(own) for own in (model or self.model)(ranks)]

    def native(self, values: list[Outputs], dtype: str) -> list[Outputs]:
        """The same values in the dtypes that the problem returns."""
        kinds = [self.dtype_of(i, want, dtype) for i, want in enumerate(values[0])]
        return [[value.to(kind) for value, kind in zip(own, kinds, strict=True)] for own in values]

    def dtype_of(self, position: int, want: torch.Tensor, dtype: str) -> torch.dtype:
        declared = self.results[position] if position < len(self.results) else None
        if declared is not None:
            return declared
        if want.is_complex():
            return torch.complex128 if dtype == "fp64" else torch.complex64
        return DTYPES[dtype] if want.is_floating_point() else want.dtype

    def worst(
        self, ranks: list[Arguments], truth: list[Outputs], outputs: Sequence[Outputs | None], dtype: str
    ) -> float:
        """The largest ratio over all outputs of all ranks, infinite where a shape is wrong; above 1 a candidate is wrong."""
        return max(self.ratios(ranks, truth, outputs, dtype))

    def ratios(
        self, ranks: list[Arguments], truth: list[Outputs], outputs: Sequence[Outputs | None], dtype: str
    ) -> list[float]:
        """By rank."""
        return [
            ratio_of(self.problem, arguments, rank, len(ranks), truth[rank], outputs[rank], dtype)
            for rank, arguments in enumerate(ranks)
        ]


def ratio_of(
    problem: Problem,
    arguments: Arguments,
    rank: int,
    world_size: int,
    truth: Outputs,
    outputs: Outputs | None,
    dtype: str,
) -> float:
    if outputs is None or [t.shape for t in outputs] != [t.shape for t in truth]:
        return math.inf
    context = Context(arguments=arguments, rank=rank, world_size=world_size, dtype=DTYPES[dtype])
    changed = [rule for name, rule in problem.mutates.items() for _ in tensors_in(arguments[name])]
    returned = len(truth) - len(changed)
    rules: tuple[Rule, ...] = problem.compare if isinstance(problem.compare, tuple) else (problem.compare,) * returned
    pairs = zip([*rules, *changed], truth, outputs, strict=True)
    return max((rule(want, got, context) for rule, want, got in pairs), default=0.0)


def _tensors(own: Any) -> Outputs:
    listed = own if isinstance(own, list | tuple) else [own]
    return [torch.from_numpy(np.ascontiguousarray(one)) if not isinstance(one, torch.Tensor) else one for one in listed]


def run_refused(rank: int, world_size: int, module: str, which: int) -> None:
    """Calls the reference with arguments that the test file says it must refuse."""
    spec: Spec = importlib.import_module(module).TestModel.spec
    dtype = "fp32" if "fp32" in spec.problem.dtypes else spec.problem.dtypes[0]
    arguments = ready_arguments(spec.number, rank, world_size, "tiny", dtype, 0)
    spec.problem.reference(**(arguments | spec.refused[which][1](arguments)))


# The tests.


def spoil(output: torch.Tensor, offset: float = 0.0) -> torch.Tensor:
    """One element wrong: the largest finite one by a quarter, or the first integer or truth value by one."""
    values = output.clone().flatten()
    if values.dtype is torch.bool:
        values[0] = ~values[0]
    elif not (values.is_floating_point() or values.is_complex()):
        values[0] += 1
    else:
        exact = values.to(torch.complex128 if values.is_complex() else torch.float64)
        index = torch.where(exact.abs().isfinite(), exact.abs(), -1.0).argmax()
        wrong = exact[index] * (0.75 if values.element_size() == 1 else 1.25)  # FP8 ends at 448
        values[index] = (wrong + offset * exact[index].sgn()).to(values.dtype)
    return values.view_as(output)


def with_last_element_wrong(output: torch.Tensor) -> torch.Tensor:
    values = output.float().flatten().clone()
    values[-1] -= torch.copysign(2 * values.square().mean().sqrt() + 1e-3, values[-1])  # towards 0: FP8 ends at 448
    return values.to(output.dtype).view_as(output)


def backwards(output: torch.Tensor) -> torch.Tensor:
    plain = output.view(torch.uint8) if output.dtype is torch.float8_e4m3fn else output
    return plain.flatten().flip(0).view(output.dtype).view_as(output)


def _received(sent: Outputs, like: Outputs) -> Outputs:
    return [
        got.view(torch.float8_e4m3fn) if want.dtype is torch.float8_e4m3fn and got.dtype is torch.uint8 else got
        for got, want in zip(sent, like, strict=False)
    ]


def _weight(output: torch.Tensor) -> float:
    """Elements that are not zero, by their size: where a spoilt one counts most."""
    values = wide(output).abs()
    return float(values.nan_to_num(posinf=0.0).sum()) + values.numel()


class ModelTests:
    """The tests that every problem has. `pytest_generate_tests` (conftest.py) gives them the cases of the file's `spec`."""

    spec: ClassVar[Spec]

    def __init_subclass__(cls) -> None:
        """A test without cases is no test, where pytest would report it as skipped."""
        for test, cases in (
            ("test_widened_reference_is_exact", cls.spec.is_widened),
            ("test_mistakes_are_refused", cls.spec.mistakes),
            ("test_wrong_arguments_are_refused_on_every_rank", cls.spec.refused),
        ):
            if not cases:
                setattr(cls, test, None)

    def test_reference_is_the_model(self, world: Worlds, world_size: int, size: str, dtype: str) -> None:
        spec = self.spec
        assert spec.problem.why_not(size, world_size, dtype) is None
        by_rank = world(world_size).call(run_reference, spec.number, size, dtype, spec.calls)
        arguments = [spec.arguments(world_size, size, dtype, call) for call in spec.calls]
        truths = [spec.truth(ranks) for ranks in arguments]
        by_call = [self._outputs(by_rank, index, truths[index], dtype) for index in range(len(spec.calls))]
        other_calls = []
        for index, (ranks, truth) in enumerate(zip(arguments, truths, strict=True)):
            outputs = by_call[index]
            worst = partial(spec.worst, ranks, truth, dtype=dtype)
            assert worst(outputs=outputs) <= spec.honest
            assert spec.returns_arguments or not any(own[index]["shares"] for own in by_rank), "an argument is returned"
            assert not spec.contiguous or all(own[index]["contiguous"] for own in by_rank)

            if world_size == 1 and not spec.ordered:
                continue  # alone, there may be nothing to do: a graph of one node
            zeros = [[torch.zeros_like(t) for t in own] for own in outputs]
            assert worst(outputs=zeros) > spec.zeros
            if spec.ordered:
                assert worst(outputs=[[backwards(t) for t in own] for own in outputs]) > 3
            other_calls.append(worst(outputs=by_call[(index + 1) % len(by_call)]))
            if world_size > 1:
                assert worst(outputs=[outputs[0], *zeros[1:]]) > 3, "only rank 0 need be right"
                silent = [own[index]["silent"] for own in by_rank]
                assert spec.silent_raises or None not in silent
                assert worst(outputs=[own and _received(own, truth[0]) for own in silent]) > 3, "nobody need talk"
            self._refuse_spoilt_elements(ranks, truth, outputs, dtype)
        if other_calls and not spec.same_every_call:
            # Two losses may lie close to each other by chance: of an output of few numbers one pair of calls must differ.
            few = all(sum(t.numel() for t in own) <= FEW_NUMBERS for own in by_call[0])
            assert (max if few else min)(other_calls) > 3, "another call's results pass"

    def _outputs(self, by_rank: list[Any], index: int, truth: list[Outputs], dtype: str) -> list[Outputs]:
        outputs = [_received(own[index]["outputs"], truth[0]) for own in by_rank]
        for own in outputs:
            found, wanted = [t.dtype for t in own], [self.spec.dtype_of(i, t, dtype) for i, t in enumerate(truth[0])]
            assert found == wanted, f"dtypes {found} for {wanted}"
        return outputs

    def _refuse_spoilt_elements(
        self, ranks: list[Arguments], truth: list[Outputs], outputs: list[Outputs], dtype: str
    ) -> None:
        changes: list[Callable[[torch.Tensor], torch.Tensor]] = [partial(spoil, offset=self.spec.spoilt_offset)]
        changes += [with_last_element_wrong] if self.spec.ordered else []
        for position in range(len(outputs[0])):
            fullest = max(range(len(ranks)), key=lambda rank, p=position: _weight(outputs[rank][p]))  # type: ignore[misc]
            for rank in range(len(ranks)) if self.spec.every_rank else [fullest]:
                for change in changes if outputs[rank][position].numel() else []:
                    spoilt = list(outputs[rank])
                    spoilt[position] = change(spoilt[position])
                    ratio = ratio_of(self.spec.problem, ranks[rank], rank, len(ranks), truth[rank], spoilt, dtype)
                    least = 1.0 if change is with_last_element_wrong else self.spec.spoilt
                    assert ratio > least, f"output {position} of rank {rank}: {ratio:.2f}"

    def test_widened_reference_is_exact(self, world: Worlds, widened_size: str) -> None:
        """What the judge takes for the truth."""
        spec = self.spec
        dtype = spec.problem.default_dtype
        by_rank = world(4).call(run_reference, spec.number, widened_size, dtype, spec.calls, True)
        for index, call in enumerate(spec.calls):
            truth = spec.truth(spec.arguments(4, widened_size, dtype, call))
            for own, wanted in zip(by_rank, truth, strict=True):
                for got, want in zip(own[index]["outputs"], wanted, strict=True):
                    assert got.dtype == want.dtype
                    scale = float(want.abs().max()) if want.numel() else 0.0
                    torch.testing.assert_close(got, want, rtol=spec.exactness, atol=spec.exactness / 10 * scale)

    def test_mistakes_are_refused(self, mistake: str, world_size: int, size: str, dtype: str) -> None:
        spec, margins = self.spec, []
        for call in spec.mistake_calls:
            ranks = spec.arguments(world_size, size, dtype, call)
            truth = spec.truth(ranks)
            assert spec.worst(ranks, truth, spec.native(truth, dtype), dtype) <= 1
            wrong = spec.native(spec.truth(ranks, spec.mistakes[mistake]), dtype)
            margins.append(spec.worst(ranks, truth, wrong, dtype))
        assert max(margins) > spec.mistaken_once, margins
        assert min(margins) >= spec.mistaken_always, margins

    def test_wrong_arguments_are_refused_on_every_rank(self, world: Worlds, refused: int) -> None:
        with pytest.raises(RankError) as caught:
            world(2).call(run_refused, type(self).__module__, refused)
        assert set(caught.value.failures) == {0, 1}
        for failure in caught.value.failures.values():
            assert re.match(f"ValueError: .*{self.spec.refused[refused][0]}", failure), failure

    def test_large_sizes_are_described_without_drawing_them(self) -> None:
        problem = self.spec.problem
        dtype = problem.default_dtype
        for size in ("paper", "real"):
            assert problem.why_not(size, 8, dtype) is None
            for world_size in (2, 4, 8):
                if problem.why_not(size, world_size, dtype) is None:
                    taken = world_size * problem.argument_bytes(size, world_size, dtype)
                    assert taken > 0
                    assert taken < self.spec.large_bytes or problem.why_not_on_one_gpu(size, world_size)
                    cost = problem.cost(problem.sizes[size], world_size, DTYPES[dtype].itemsize)
                    assert cost.hbm_bytes > 0
                    assert cost.link_received_bytes > 0
