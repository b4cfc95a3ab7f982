"""Problem 53, parameters through FP8, then all-gather."""

import torch
from harness import ModelTests, Spec
from model_fp8 import check_maxima, through_fp8
from on_ranks import Arguments, Outputs, all_arguments


def fp8_allgather(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    pairs = [through_fp8(a["flat_param_shard"], a["amax_history"], mistake) for a in ranks]
    outputs = []
    for rank, (_, new) in enumerate(pairs):
        parts = [values for values, _ in pairs]
        if mistake == "own part as it was":
            parts[rank] = ranks[rank]["flat_param_shard"].double()
        outputs.append([torch.cat(parts), new])
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        53,
        fp8_allgather,
        results=(None, torch.bfloat16),
        every_rank=True,
        spoilt=1.2,
        large_bytes=20e9,
        mistaken_once=1.5,
        mistaken_always=1.5,
        mistake_cases=((4, "tiny", "bf16"), (4, "odd", "bf16")),
        mistakes={
            "not quantised": lambda ranks: fp8_allgather(ranks, "not quantised"),
            "own part as it was": lambda ranks: fp8_allgather(ranks, "own part as it was"),
        },
        refused=[(r"(\d|fit)", lambda _: {"flat_param_shard": torch.ones(2, 2)})],
    )


def test_maxima_are_fair_and_tell_old_entries_from_new() -> None:
    check_maxima(53, "flat_param_shard")


def test_float32_maximum_is_rounded_before_it_is_used() -> None:
    seen = 0
    for call in range(12):
        arguments = all_arguments(53, 2, "tiny", "fp32", call)[0]
        seen += bool(arguments["flat_param_shard"].abs().max() > through_fp8(*arguments.values())[1].max().float())
    assert seen >= 2
