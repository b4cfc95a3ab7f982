"""Problem 21, gradient clipping by the norm over all ranks."""

import pytest
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments

from pkb.problems import get


def clip_grad_norm(ranks: list[Arguments]) -> list[Outputs]:
    gradients = [[g.double() for g in arguments["grad_tensors"]] for arguments in ranks]
    norm = torch.cat([g.flatten() for own in gradients for g in own]).square().sum().sqrt()
    factor = min(1.0, ranks[0]["max_norm"] / float(norm))
    return [[norm, *(g * factor for g in own)] for own in gradients]


class TestModel(ModelTests):
    spec = Spec(
        21,
        clip_grad_norm,
        results=(torch.float32,),
        large_bytes=40e9,
    )


@pytest.mark.parametrize("size", ["tiny", "odd"])
@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_a_call_clips_where_its_kind_says_so(size: str, ranks: int) -> None:
    for call in range(10):
        for kind in get(21).kinds:
            arguments = all_arguments(21, ranks, size, "fp32", call, kind)
            assert bool(clip_grad_norm(arguments)[0][0] > arguments[0]["max_norm"]) is (kind == "clips")


def test_norm_of_the_own_rank_is_no_guess() -> None:
    """sqrt(W) times the local norm, and gradients left alone, must both fail."""
    ranks = all_arguments(21, 4, "tiny", "bf16", 0, "clips")
    truth = clip_grad_norm(ranks)
    guess = [[(clip_grad_norm([a])[0][0] * 2).float(), *t[1:]] for a, t in zip(ranks, truth, strict=True)]
    assert TestModel.spec.worst(ranks, truth, guess, "bf16") > 100
    lazy = [[t[0].float(), *a["grad_tensors"]] for a, t in zip(ranks, truth, strict=True)]
    assert TestModel.spec.worst(ranks, truth, lazy, "bf16") > 10
