"""Problems 1-8, 13 and 16 against their mathematics, written a second time in one process without any communication.

The arguments of all ranks are drawn here, what every rank must hold is worked out in numpy float64, and that is
compared, by the problem's own rule, with what the references return on real ranks. A mistake in a reference (a wrong
block, root or axis) therefore has nothing to agree with; and each comparison is also shown outputs that it must refuse.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from world import World

from pkb.problems import get
from pkb.problems.base import DTYPES, tensors_in
from pkb.problems.compare import Context, Exact
from pkb.problems.draw import Draw

Worlds = Callable[[int], World]
Array = NDArray[np.float64]
Arguments = dict[str, Any]
SECRET = b"test secret of the models"


def arguments_of(name: str, *, rank: int, world_size: int, size: str, dtype: str, call: int) -> Arguments:
    problem = get(name)
    return problem.inputs(
        Draw(
            secret=SECRET, call=call, rank=rank, world_size=world_size, size=problem.sizes[size],
            dtype=DTYPES[dtype], device=torch.device("cpu"), layout=problem.layout,
        )
    )  # fmt: skip


def run_reference(rank: int, world_size: int, name: str, size: str, dtype: str, call: int) -> Arguments:
    """On a rank: what the reference returns, and what it did to its arguments."""
    arguments = arguments_of(name, rank=rank, world_size=world_size, size=size, dtype=dtype, call=call)
    before = [tensor.clone() for tensor in tensors_in(arguments)]
    with torch.no_grad():
        output = get(name).reference(**arguments)
    after = tensors_in(arguments)
    return {
        "output": output.clone(),
        "contiguous": output.is_contiguous(),
        "unchanged": all(torch.equal(a, b) for a, b in zip(before, after, strict=True)),
        "aliases": any(output.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() for t in after),
    }


# The mathematics: from the arrays of all ranks (and the root, where there is one) to what every rank holds.


def wide(ranks: list[Arguments], key: str) -> list[Array]:
    return [arguments[key].double().numpy() for arguments in ranks]


def allreduce(ranks: list[Arguments]) -> list[Array]:
    return [np.stack(wide(ranks, "tensor")).sum(axis=0)] * len(ranks)


def allgather(ranks: list[Arguments]) -> list[Array]:
    return [np.stack(wide(ranks, "tensor"))] * len(ranks)


def broadcast(ranks: list[Arguments]) -> list[Array]:
    return [wide(ranks, "tensor")[ranks[0]["src"]]] * len(ranks)


def reduce(ranks: list[Arguments]) -> list[Array]:
    own = wide(ranks, "tensor")
    return [np.stack(own).sum(axis=0) if r == ranks[r]["dst"] else own[r] for r in range(len(ranks))]


def scatter(ranks: list[Arguments]) -> list[Array]:
    whole = wide(ranks, "tensor")[ranks[0]["src"]]
    assert whole.shape[0] == len(ranks)
    return [whole[r] for r in range(len(ranks))]


def gather(ranks: list[Arguments]) -> list[Array]:
    own = wide(ranks, "tensor")
    return [np.stack(own) if r == ranks[r]["dst"] else own[r] for r in range(len(ranks))]


def reducescatter(ranks: list[Arguments]) -> list[Array]:
    total = np.stack(wide(ranks, "tensor")).sum(axis=0)
    return [total.reshape(len(ranks), -1, total.shape[1])[r] for r in range(len(ranks))]


def alltoall(ranks: list[Arguments]) -> list[Array]:
    everything = np.stack(wide(ranks, "tensor"))  # source, destination, M, N
    return list(everything.swapaxes(0, 1))


def gemm_allreduce(ranks: list[Arguments]) -> list[Array]:
    """One product over the whole contraction, which the ranks' slices make up."""
    left, right = np.concatenate(wide(ranks, "A_local"), axis=1), np.concatenate(wide(ranks, "B_local"), axis=0)
    return [left @ right] * len(ranks)


def gemm_reducescatter(ranks: list[Arguments]) -> list[Array]:
    whole = gemm_allreduce(ranks)[0]
    rows = whole.shape[0] // len(ranks)
    return [whole[r * rows : (r + 1) * rows] for r in range(len(ranks))]


MODELS: dict[str, Callable[[list[Arguments]], list[Array]]] = {
    model.__name__: model
    for model in (
        allreduce, allgather, broadcast, reduce, scatter, gather, reducescatter, alltoall, gemm_allreduce,
        gemm_reducescatter,
    )
}  # fmt: skip
EXACT = {"allgather", "broadcast", "scatter", "gather", "alltoall"}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("size", ["tiny", "odd"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("name", MODELS)
def test_reference_is_the_mathematics(name: str, world_size: int, size: str, dtype: str, world: Worlds) -> None:
    problem, model = get(name), MODELS[name]
    assert problem.why_not(size, world_size, dtype) is None
    call = world_size  # some other root for each world
    draw = partial(arguments_of, name, world_size=world_size, size=size, dtype=dtype)
    ranks = [draw(rank=r, call=call) for r in range(world_size)]
    expected = model(ranks)
    foreign = model([draw(rank=r, call=call + 100) for r in range(world_size)])
    alone = [model(_silencing_all_but(r, ranks))[r] for r in range(world_size)]
    results = world(world_size).call(run_reference, name, size, dtype, call)

    blind = []
    for rank, result in enumerate(results):
        output, truth = result["output"], torch.from_numpy(np.ascontiguousarray(expected[rank]))
        compare = partial(_ratio, name, ranks[rank], rank, world_size)
        assert output.dtype == DTYPES[dtype]
        assert tuple(output.shape) == tuple(truth.shape)
        assert result["unchanged"], "an argument was changed"
        assert result["contiguous"]
        assert result["aliases"] == (name == "gather" and rank != ranks[rank]["dst"])
        assert compare(truth, output) <= 1

        # The comparison must be able to fail: a tail left out, elements in another order, results of another call.
        assert compare(truth, _with_last_element_wrong(output)) > 1
        assert compare(truth, output.flatten().flip(0).view_as(output)) > 1
        if foreign[rank].shape == expected[rank].shape:
            assert compare(truth, torch.from_numpy(foreign[rank]).to(output.dtype)) > 1
        blind.append(compare(truth, torch.from_numpy(alone[rank]).to(output.dtype)) <= 1)
    if world_size > 1:
        assert not all(blind), "ranks that never communicate would pass"


def _ratio(
    name: str, arguments: Arguments, rank: int, world_size: int, truth: torch.Tensor, output: torch.Tensor
) -> float:
    rule = get(name).compare
    assert callable(rule)
    return rule(truth, output, Context(arguments=arguments, rank=rank, world_size=world_size, dtype=output.dtype))


def _with_last_element_wrong(output: torch.Tensor) -> torch.Tensor:
    wrong = output.clone()
    wrong.view(-1)[-1] += 2 * output.double().square().mean().sqrt().item()
    return wrong


def _silencing_all_but(keep: int, ranks: list[Arguments]) -> list[Arguments]:
    """What rank `keep` can know by itself: the others' tensors are zero."""
    silent = [{k: v * 0 if isinstance(v, torch.Tensor) else v for k, v in arguments.items()} for arguments in ranks]
    return [ranks[r] if r == keep else silent[r] for r in range(len(ranks))]


@pytest.mark.parametrize("name", MODELS)
def test_comparison_is_exact_where_nothing_is_computed(name: str) -> None:
    problem = get(name)
    assert (problem.truth == "native") == (problem.compare == Exact()) == (name in EXACT)


def test_reduce_is_exact_off_the_root() -> None:
    """One unit in the last place is rounding on the root and somebody else's data anywhere else."""
    truth = torch.randn(64, generator=torch.Generator().manual_seed(1))
    output = torch.nextafter(truth, torch.tensor(torch.inf))
    assert _ratio("reduce", {"dst": 1}, 1, 2, truth, output) <= 1
    assert _ratio("reduce", {"dst": 1}, 0, 2, truth, output) > 1
    assert _ratio("reduce", {"dst": 1}, 0, 2, truth, truth) <= 1


ROOTED = [("broadcast", "src"), ("reduce", "dst"), ("scatter", "src"), ("gather", "dst")]


@pytest.mark.parametrize(("name", "root"), ROOTED)
def test_roots_agree_between_ranks_and_vary_between_calls(name: str, root: str) -> None:
    seen = set()
    for call in range(24):
        draw = partial(arguments_of, name, world_size=4, size="tiny", dtype="fp32", call=call)
        (one,) = {draw(rank=rank)[root] for rank in range(4)}
        seen.add(one)
    assert seen == {0, 1, 2, 3}
