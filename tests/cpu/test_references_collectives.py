"""What references 1-8, 13 and 16 promise beyond their usual inputs: other shapes and dtypes, refusal of nonsense."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from world import RankError, World

from pkb.problems import get

Worlds = Callable[[int], World]


def solve(rank: int, world_size: int, name: str, per_rank: list[list[Any]]) -> torch.Tensor:
    return get(name).reference(*per_rank[rank])


def solve_transposed(rank: int, world_size: int, name: str, per_rank: list[torch.Tensor]) -> torch.Tensor:
    """With the same values as a view that is not contiguous."""
    return get(name).reference(per_rank[rank].mT.contiguous().mT)


def numbered(rank: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers: every sum is exact in every dtype."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(-8, 9, shape, generator=generator).to(dtype)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5, 2)])
def test_allreduce_and_allgather_take_any_shape(shape: tuple[int, ...], world: Worlds) -> None:
    tensors = [numbered(r, shape) for r in range(3)]
    for output in world(3).call(solve, "allreduce", [[t] for t in tensors]):
        assert torch.equal(output, tensors[0] + tensors[1] + tensors[2])
    for output in world(3).call(solve, "allgather", [[t] for t in tensors]):
        assert torch.equal(output, torch.stack(tensors))


def test_alltoall_moves_blocks_of_several_rows(world: Worlds) -> None:
    tensors = [numbered(r, (6, 5)) for r in range(2)]
    outputs = world(2).call(solve, "alltoall", [[t] for t in tensors])
    assert torch.equal(outputs[0], torch.cat([tensors[0][:3], tensors[1][:3]]))
    assert torch.equal(outputs[1], torch.cat([tensors[0][3:], tensors[1][3:]]))


def test_reducescatter_keeps_further_axes(world: Worlds) -> None:
    tensors = [numbered(r, (4, 3, 2)) for r in range(2)]
    outputs = world(2).call(solve, "reducescatter", [[t] for t in tensors])
    total = tensors[0] + tensors[1]
    assert torch.equal(outputs[0], total[:2])
    assert torch.equal(outputs[1], total[2:])


def test_scatter_keeps_an_axis_of_several_rows_and_drops_one_of_one(world: Worlds) -> None:
    whole = numbered(9, (6, 5))
    outputs = world(2).call(solve, "scatter", [[torch.zeros(3, 5), 1], [whole, 1]])
    assert torch.equal(outputs[0], whole[:3])
    assert torch.equal(outputs[1], whole[3:])
    outputs = world(2).call(solve, "scatter", [[whole[:2], 0], [torch.zeros(5), 0]])
    assert torch.equal(outputs[0], whole[0])
    assert torch.equal(outputs[1], whole[1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_every_dtype_is_summed_as_itself(dtype: torch.dtype, world: Worlds) -> None:
    tensors = [numbered(r, (4, 3), dtype) for r in range(2)]
    total = tensors[0] + tensors[1]
    outputs = world(2).call(solve, "reducescatter", [[t] for t in tensors])
    assert outputs[1].dtype == dtype
    assert torch.equal(outputs[1], total[2:])
    outputs = world(2).call(solve, "reduce", [[t, 1] for t in tensors])
    assert torch.equal(outputs[0], tensors[0])
    assert torch.equal(outputs[1], total)


@pytest.mark.parametrize(
    "name", ["allreduce", "allgather", "broadcast", "reduce", "gather", "reducescatter", "alltoall"]
)
def test_a_view_that_is_not_contiguous_is_taken_by_value(name: str, world: Worlds) -> None:
    tensors = [numbered(r, (4, 6)) for r in range(2)]
    plain = world(2).call(solve, name, [[t] for t in tensors])
    viewed = world(2).call(solve_transposed, name, tensors)
    assert all(torch.equal(a, b) for a, b in zip(plain, viewed, strict=True))


SQUARE = torch.ones(3, 3)
WRONG = [
    ("broadcast", [SQUARE, 2], "src is 2"),
    ("broadcast", [SQUARE, -1], "src is -1"),
    ("reduce", [SQUARE, 2], "dst is 2"),
    ("scatter", [SQUARE, 7], "src is 7"),
    ("gather", [SQUARE, -1], "dst is -1"),
    ("reducescatter", [SQUARE], "2 equal blocks"),
    ("alltoall", [SQUARE], "2 equal slices"),
    ("gemm_reducescatter", [SQUARE, SQUARE], "3 rows"),
    ("gemm_reducescatter", [SQUARE, torch.ones(2, 3)], "inner sizes"),
    ("gemm_allreduce", [SQUARE, torch.ones(2, 3)], "inner sizes"),
]


@pytest.mark.parametrize(("name", "arguments", "words"), WRONG, ids=[f"{name}-{words}" for name, _, words in WRONG])
def test_wrong_arguments_are_refused_before_any_communication(
    name: str, arguments: list[Any], words: str, world: Worlds
) -> None:
    with pytest.raises(RankError) as caught:
        world(2).call(solve, name, [arguments, arguments])
    assert set(caught.value.failures) == {0, 1}
    assert all(failure.startswith("ValueError") and words in failure for failure in caught.value.failures.values())


def test_scatter_of_uneven_rows_is_refused_on_the_source(world: Worlds) -> None:
    with pytest.raises(RankError, match="rank 1: ValueError: a tensor \\(3, 3\\)"):
        world(2).call(solve, "scatter", [[SQUARE, 1], [SQUARE, 1]])
