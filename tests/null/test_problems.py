"""Every problem of the registry, present and future, keeps the promises that the engine relies on."""

import builtins
import dis
import inspect
import itertools
import math
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
import torch

from pkb.problems import default_registry
from pkb.problems.base import DTYPES, KNOWN_SIZES, OPTIONAL_SIZES, SIZE_NAMES, Problem, tensors_in
from pkb.problems.draw import Draw
from pkb.types.cost import Cost

PROBLEMS = default_registry().all()
GPU_BYTES = 120e9 / 8
"""What one of eight ranks that share a large GPU may use for arguments."""

SCALAR = {23}
"""Problems whose arguments are single numbers at every size."""

every_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=[p.stem for p in PROBLEMS])


def draw_for(problem: Problem, *, rank: int, world_size: int, call: int = 0, secret: bytes = b"s", **more: Any) -> Draw:
    given: dict[str, Any] = {
        "size": problem.sizes["tiny"],
        "dtype": DTYPES[problem.dtypes[0]],
        "device": torch.device("cpu"),
        "layout": problem.layout,
    }
    return Draw(secret=secret, call=call, rank=rank, world_size=world_size, **(given | more))


def some_world(problem: Problem) -> int:
    """The smallest number of ranks, more than one, that runs the tiny size."""
    return next(w for w in problem.world_sizes if w > 1 and problem.why_not("tiny", w, problem.dtypes[0]) is None)


def costs(problem: Problem, size: str) -> Iterator[tuple[int, Cost]]:
    for world_size in problem.world_sizes:
        if problem.why_not(size, world_size, problem.dtypes[0]) is None:
            yield world_size, problem.cost(problem.sizes[size], world_size, DTYPES[problem.dtypes[0]].itemsize)


@every_problem
def test_names_agree(problem: Problem) -> None:
    assert Path(inspect.getfile(problem.reference)).stem == f"p{problem.stem}"
    assert problem.reference.__name__ == "solution"
    assert problem.source
    assert problem.version >= 1


@every_problem
def test_docstring_teaches(problem: Problem) -> None:
    lines = problem.docstring.splitlines()
    assert len([line for line in lines if line.strip()]) >= 5, "what it computes, what each rank holds, what is fast"
    assert problem.summary == lines[0]
    assert problem.summary.endswith(".")
    assert lines[1] == ""


@every_problem
def test_the_docstring_says_what_none_means(problem: Problem) -> None:
    """Of every argument that may be None by the signature, but process groups, which every reference takes as the world."""
    optional = [
        name
        for name, parameter in problem.signature.parameters.items()
        if "None" in str(parameter.annotation) and "ProcessGroup" not in str(parameter.annotation)
    ]
    sentences = [said.replace(" ", "_") for said in re.split(r"\.\s", problem.docstring) if "None" in said]
    assert not [name for name in optional if not any(name in said for said in sentences)], "in a sentence of its own"


@every_problem
def test_sizes(problem: Problem) -> None:
    assert set(SIZE_NAMES) <= set(problem.sizes) <= set(KNOWN_SIZES)
    assert len({tuple(sorted(size.items())) for size in problem.sizes.values()}) == len(problem.sizes), (
        "two sizes are equal"
    )
    assert any(value % 8 for value in problem.sizes["odd"].values())
    for name in problem.sizes:
        assert any(problem.why_not(name, w, d) is None for w in problem.world_sizes if w > 1 for d in problem.dtypes)


@every_problem
def test_inputs_are_the_arguments_of_the_signature(problem: Problem) -> None:
    world_size = some_world(problem)
    for rank in range(world_size):
        arguments = problem.inputs(draw_for(problem, rank=rank, world_size=world_size))
        assert list(arguments) == list(problem.signature.parameters)
    assert set(problem.mutates) <= set(problem.signature.parameters)


@every_problem
def test_reference_is_self_contained(problem: Problem) -> None:
    """A model is shown the source of `solution` alone: it may use torch and the standard library, and no other name."""

    def globals_of(code: CodeType) -> set[str]:
        mine = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
        return mine.union(*(globals_of(inner) for inner in code.co_consts if isinstance(inner, CodeType)))

    module = inspect.getmodule(problem.reference)
    for name in globals_of(problem.reference.__code__) - set(vars(builtins)):
        value = getattr(module, name)
        origin = value.__name__ if isinstance(value, ModuleType) else value.__module__
        assert origin.partition(".")[0] in {"torch", "math", "typing"}, f"solution uses {name} of {origin}"


@every_problem
def test_shapes_on_no_device_are_the_shapes_on_a_device(problem: Problem) -> None:
    """`argument_bytes` asks for inputs on torch's meta device: nothing drawn there may decide a shape."""
    world_size, dtype = some_world(problem), problem.dtypes[0]
    drawn = []
    for rank, kind in itertools.product(range(world_size), problem.kinds or ("",)):
        draw = partial(draw_for, problem, rank=rank, world_size=world_size, secret=b"shape", kind=kind)
        real, meta = problem.inputs(draw()), problem.inputs(draw(device=torch.device("meta")))
        assert [(t.shape, t.dtype) for t in tensors_in(real)] == [(t.shape, t.dtype) for t in tensors_in(meta)]
        drawn.append(sum(t.nbytes for t in tensors_in(real)))
    assert problem.argument_bytes("tiny", world_size, dtype) == max(drawn)


@every_problem
def test_data_depends_on_secret_call_and_rank(problem: Problem) -> None:
    """Else a candidate could keep an old answer, know the data beforehand, or do without its peers."""
    world_size = some_world(problem)

    def bits(**which: Any) -> list[torch.Tensor]:
        return tensors_in(problem.inputs(draw_for(problem, **({"rank": 0, "world_size": world_size} | which))))

    def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
        return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))

    assert equal(bits(), bits())
    for other in ({"call": 1}, {"secret": b"t"}, {"rank": 1}):
        assert not equal(bits(), bits(**other)), f"the same data for {other}"


@every_problem
def test_data_is_finite(problem: Problem) -> None:
    for dtype in problem.dtypes:
        draw = draw_for(problem, rank=0, world_size=some_world(problem), dtype=DTYPES[dtype])
        tensors = tensors_in(problem.inputs(draw))
        assert tensors
        assert all(bool(torch.isfinite(t.float()).all()) for t in tensors)


@every_problem
@pytest.mark.parametrize("size", KNOWN_SIZES)
def test_cost_is_sane(problem: Problem, size: str) -> None:
    assert size in problem.sizes or size in OPTIONAL_SIZES
    for world_size, cost in costs(problem, size) if size in problem.sizes else []:
        figures = [cost.flops, cost.hbm_bytes, cost.link_sent_bytes, cost.link_received_bytes, cost.phases]
        switch = [cost.switch_sent_bytes, cost.switch_received_bytes]
        assert all(math.isfinite(figure) and figure >= 0 for figure in figures)
        assert cost.hbm_bytes > 0
        assert (switch[0] is None) == (switch[1] is None)
        assert all(math.isfinite(s) and s >= 0 for s in switch if s is not None)
        communicates = max(cost.link_sent_bytes, cost.link_received_bytes) > 0
        assert communicates == (world_size > 1), f"{world_size} ranks"
        if communicates:
            assert cost.phases >= 1
            assert None in switch or max(s or 0 for s in switch) > 0


@every_problem
def test_cost_grows_from_tiny_to_real(problem: Problem) -> None:
    tiny, real = dict(costs(problem, "tiny")), dict(costs(problem, "real"))
    assert set(tiny) & set(real) - {1}
    for world_size in set(tiny) & set(real):
        small, large = tiny[world_size], real[world_size]
        if problem.id not in SCALAR:
            assert large.hbm_bytes > 10 * small.hbm_bytes
        assert large.flops >= small.flops
        assert large.link_sent_bytes + large.link_received_bytes >= small.link_sent_bytes + small.link_received_bytes


@every_problem
def test_real_arguments_fit(problem: Problem) -> None:
    world_size = 8 if 8 in problem.world_sizes else max(problem.world_sizes)
    dtype = "bf16" if "bf16" in problem.dtypes else problem.dtypes[0]
    if problem.why_not("real", world_size, dtype) is None:
        tiny, real = (problem.argument_bytes(size, world_size, dtype) for size in ("tiny", "real"))
        assert 0 < tiny <= real < GPU_BYTES
        assert tiny < real or problem.id in SCALAR
        assert tiny < 1 << 20


@every_problem
def test_why_not_names_what_is_wrong(problem: Problem) -> None:
    world_size, dtype = some_world(problem), problem.dtypes[0]
    assert problem.why_not("tiny", world_size, dtype) is None
    for size, ranks, kind, word in (
        ("huge", world_size, dtype, "'huge'"),
        ("tiny", 1000, dtype, "1000 ranks"),
        ("tiny", world_size, "int3", "int3"),
    ):
        reason = problem.why_not(size, ranks, kind)
        assert reason is not None
        assert word in reason
        assert problem.stem in reason
    for size in problem.sizes:
        for ranks in problem.world_sizes:
            assert problem.why_not(size, ranks, dtype) is None or len(str(problem.why_not(size, ranks, dtype))) > 10


@every_problem
def test_the_same_bits_are_checked_where_the_text_promises_them(problem: Problem) -> None:
    """Models read the docstring: what it promises is checked, and nothing is checked that it does not say."""
    words = " ".join(problem.docstring.split())
    assert problem.same_bits == ("the same bits everywhere" in words)


DECODE = {1, 2, 7, 8, 13, 16, 18, 27, 28, 29, 31, 45, 46, 49}


@every_problem
def test_a_step_of_inference_is_small(problem: Problem) -> None:
    """1 to 256 tokens, on every number of ranks, and much less work than `real`."""
    assert ("decode" in problem.sizes) == (problem.id in DECODE)
    if problem.id in DECODE:
        assert 1 <= problem.sizes["decode"].get("tokens", 1) <= 256
        steps, real = dict(costs(problem, "decode")), dict(costs(problem, "real"))
        assert steps.keys() == real.keys()
        assert all(steps[w].link_sent_bytes < real[w].link_sent_bytes / 4 for w in real if w > 1)
