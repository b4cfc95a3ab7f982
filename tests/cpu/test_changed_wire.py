"""The wire that `pkb lint` changes: it carries every collective as torch does, and only what its change says is different."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pkb.problems import default_registry, get
from pkb.problems.base import DTYPES, tensors_in
from pkb.problems.draw import Draw, GroupRef
from pkb.rank.comparison.changed_wire import ChangedWire
from world import World, world_group

Worlds = Callable[[int], World]
MOVED = (1, 2, 3, 4, 5, 6, 7, 8, 35, 54, 58, 71, 79)
"""Problems whose references use, together, every operation of torch.distributed that a reference may use."""


def arguments(number: int, rank: int, world_size: int) -> dict[str, Any]:
    problem = get(number)
    draw = Draw(
        secret=b"wire", call=0, rank=rank, world_size=world_size, size=problem.sizes["tiny"],
        dtype=DTYPES["fp64" if "fp64" in problem.dtypes else "fp32"], device=torch.device("cpu"), layout=problem.layout,
    )  # fmt: skip
    drawn = problem.inputs(draw)
    return {name: world_group() if isinstance(value, GroupRef) else value for name, value in drawn.items()}


def unchanged(exchange: int, distance: int, piece: torch.Tensor) -> torch.Tensor:
    return piece


def without_previous(exchange: int, distance: int, piece: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(piece) if distance == 1 else piece


def through_wires(rank: int, world_size: int, number: int) -> dict[str, Any]:
    """On a rank: the reference's outputs as they are, through a wire that changes nothing, and through one that does."""
    outputs: dict[str, Any] = {}
    reference = get(number).reference
    outputs["plain"] = tensors_in(reference(*arguments(number, rank, world_size).values()))
    for name, change in (("same", unchanged), ("changed", without_previous)):
        with ChangedWire(change) as wire:
            outputs[name] = tensors_in(reference(*arguments(number, rank, world_size).values()))
        outputs[f"{name} exchanges"] = wire.exchanges
    outputs["after"] = tensors_in(reference(*arguments(number, rank, world_size).values()))
    return outputs


@pytest.mark.parametrize("number", MOVED)
def test_an_unchanged_wire_is_torchs_own(number: int, world: Worlds) -> None:
    by_rank = world(3).call(through_wires, number)
    assert any(own["same exchanges"] for own in by_rank)
    for own in by_rank:
        for name in ("same", "after"):
            for want, got in zip(own["plain"], own[name], strict=True):
                torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    changed = [
        not torch.equal(want, got) for own in by_rank for want, got in zip(own["plain"], own["changed"], strict=True)
    ]
    assert any(changed)


def test_every_operation_of_a_reference_is_carried() -> None:
    """An operation that the wire does not know would not be changed, and a null candidate would pass by it."""
    with ChangedWire(unchanged) as wire:
        known = set(wire.ours)
    local = {
        "get_rank", "get_world_size", "get_global_rank", "get_group_rank", "is_initialized", "get_backend", "ProcessGroup",
        "ReduceOp", "group", "P2POp", "Work", "barrier",
    }  # fmt: skip
    for problem in default_registry().all():
        used = set(re.findall(r"\bdist\.(\w+)", problem.reference_source))
        assert used <= known | local, f"{problem.stem}: {used - known - local}"
