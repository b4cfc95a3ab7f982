"""Problem 22, gradient clipping with expert parallelism: one norm over everything."""

import math

import pytest
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, Worlds, all_arguments

from pkb.problems import get
from rank_groups import own_groups


def clip_grad_norm_ep(ranks: list[Arguments]) -> list[Outputs]:
    shared = [[g.double() for g in a["non_ep_grad_tensors"]] for a in ranks]
    expert = [[g.double() / a["ep_size"] for g in a["ep_grad_tensors"]] for a in ranks]
    everything = torch.cat([g.flatten() for own in [*shared, *expert] for g in own])
    norm = everything.square().sum().sqrt()
    factor = min(1.0, ranks[0]["max_norm"] / float(norm))
    return [[norm, *(g * factor for g in [*a, *b])] for a, b in zip(shared, expert, strict=True)]


class TestModel(ModelTests):
    spec = Spec(
        22,
        clip_grad_norm_ep,
        results=(torch.float32,),
        refused=[("norm_type", lambda _: {"norm_type": math.inf})],
    )


def test_the_sums_are_joined_without_experts(world: Worlds) -> None:
    """Rank 1 holds no expert gradient: it must not wait elsewhere, and still get the norm of all."""
    norms = world(2).call(norm_with_one_empty_list)
    assert norms[0] == norms[1] == pytest.approx(math.sqrt(2 * 9 + 4 * 4 / 4))


def norm_with_one_empty_list(rank: int, world_size: int) -> float:
    mine = own_groups("ep_fsdp", rank, world_size)
    expert = [torch.full((4,), 2.0)] if rank == 0 else []
    norm = get(22).reference(
        [torch.full((1,), 3.0)], expert, 100.0, ep_size=2, fsdp_group=mine["world"], ep_group=mine["ep"]
    )
    assert rank or bool((expert[0] == 1.0).all())  # divided although nothing is clipped
    return float(norm)


@pytest.mark.parametrize("size", ["tiny", "odd"])
@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_a_call_clips_where_its_kind_says_so(size: str, ranks: int) -> None:
    for call in range(10):
        for kind in get(22).kinds:
            arguments = all_arguments(22, ranks, size, "fp32", call, kind)
            assert bool(clip_grad_norm_ep(arguments)[0][0] > arguments[0]["max_norm"]) is (kind == "clips")
