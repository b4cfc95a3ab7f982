"""Problem 21, gradient clipping by the norm over all ranks."""

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments


def clip_grad_norm(ranks: list[Arguments]) -> list[Outputs]:
    gradients = [[g.double() for g in arguments["grad_tensors"]] for arguments in ranks]
    norm = torch.cat([g.flatten() for own in gradients for g in own]).square().sum().sqrt()
    factor = min(1.0, ranks[0]["max_norm"] / float(norm))
    return [[norm, *(g * factor for g in own)] for own in gradients]


class TestModel(ModelTests):
    spec = Spec(
        21,
        clip_grad_norm,
        calls=(0, 1, 2, 5),
        results=(torch.float32,),
        large_bytes=40e9,
    )


def test_most_calls_clip() -> None:
    clips = []
    for call in range(40):
        ranks = all_arguments(21, 2, "tiny", "fp32", call)
        clips.append(bool(clip_grad_norm(ranks)[0][0] > ranks[0]["max_norm"]))
    assert 25 <= sum(clips) < 40


def test_norm_of_the_own_rank_is_no_guess() -> None:
    """sqrt(W) times the local norm, and gradients left alone, must both fail."""
    calls = (all_arguments(21, 4, "tiny", "bf16", call) for call in range(40))
    ranks = next(ranks for ranks in calls if float(clip_grad_norm(ranks)[0][0]) > ranks[0]["max_norm"])
    truth = clip_grad_norm(ranks)
    guess = [[(clip_grad_norm([a])[0][0] * 2).float(), *t[1:]] for a, t in zip(ranks, truth, strict=True)]
    assert TestModel.spec.worst(ranks, truth, guess, "bf16") > 100
    lazy = [[t[0].float(), *a["grad_tensors"]] for a, t in zip(ranks, truth, strict=True)]
    assert TestModel.spec.worst(ranks, truth, lazy, "bf16") > 10
