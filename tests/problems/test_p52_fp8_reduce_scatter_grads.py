"""Problem 52, gradients through FP8, then reduce-scatter."""

import torch
from harness import ModelTests, Spec
from model_fp8 import check_maxima, through_fp8
from on_ranks import Arguments, Outputs


def fp8_reduce_scatter(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    pairs = [through_fp8(a["flat_grads"], a["amax_history"], mistake) for a in ranks]
    mean = torch.stack([values for values, _ in pairs]).mean(0)
    return [[part, new] for part, (_, new) in zip(mean.chunk(len(ranks)), pairs, strict=True)]


class TestModel(ModelTests):
    spec = Spec(
        52,
        fp8_reduce_scatter,
        results=(None, torch.bfloat16),
        every_rank=True,
        spoilt=1.2,
        large_bytes=20e9,
        mistaken_once=1.5,
        mistaken_always=1.5,
        mistake_cases=((4, "tiny", "bf16"), (4, "odd", "bf16")),
        mistakes={"not quantised": lambda ranks: fp8_reduce_scatter(ranks, "not quantised")},
        refused=[(r"(\d|fit)", lambda _: {"flat_grads": torch.ones(7)})],
    )


def test_maxima_are_fair_and_tell_old_entries_from_new() -> None:
    check_maxima(52, "flat_grads")
