"""Problem 19, blocked FP8 quantisation: nearest codes found by search."""

import numpy as np
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Array, Outputs, arrays

from pkb.problems.compare import Context
from pkb.problems.p19_blocked_fp8_quantize import Codes


def float8_values() -> Array:
    """All values of float8_e4m3fn that are not negative, by code: 4 exponent bits of bias 7, 3 of mantissa, no infinity."""
    values = [(c & 7) * 2.0**-9 if c < 8 else (8 + (c & 7)) * 2.0 ** ((c >> 3) - 10) for c in range(127)]
    assert values[-1] == 448
    return np.array(values)


def blocked_fp8_quantize(ranks: list[Arguments]) -> list[Outputs]:
    block, values = ranks[0]["block_size"], float8_values()
    x = np.concatenate(arrays(ranks, "local_tensor"))
    blocks = x.reshape(len(x), -1, block)
    scales = np.abs(blocks).max(axis=-1) / 448
    quotient = np.abs(blocks) / np.where(scales == 0, 1, scales)[..., None]
    above = np.searchsorted(values, quotient).clip(1, 126)
    low, high = quotient - values[above - 1], values[above] - quotient
    nearest = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above)  # ties to the even code
    signed = np.copysign(values[nearest], blocks).reshape(x.shape)
    return [[torch.from_numpy(signed).to(torch.float8_e4m3fn), torch.from_numpy(scales)]] * len(ranks)


def one_scale_a_row(ranks: list[Arguments]) -> list[Outputs]:
    rows = blocked_fp8_quantize([a | {"block_size": a["local_tensor"].shape[1]} for a in ranks])
    return [[row[0], truth[1]] for row, truth in zip(rows, blocked_fp8_quantize(ranks), strict=True)]


def scale_one_for_zeros(ranks: list[Arguments]) -> list[Outputs]:
    return [[codes, torch.where(scales == 0, 1.0, scales)] for codes, scales in blocked_fp8_quantize(ranks)]


def best_constant_codes(ranks: list[Arguments]) -> list[Outputs]:
    return [
        [torch.full_like(codes, float(codes.float().mean())), scales] for codes, scales in blocked_fp8_quantize(ranks)
    ]


class TestModel(ModelTests):
    spec = Spec(
        19,
        blocked_fp8_quantize,
        results=(torch.float8_e4m3fn, torch.float32),
        ordered=True,
        calls=(0, 3),
        more_cases=((1, "tiny", "fp32"), (3, "odd", "bf16")),
        honest=0.7,
        exactness=1e-12,
        mistaken_always=3.0,
        mistake_calls=(1,),
        mistakes={
            "one scale a row": one_scale_a_row,
            "scale 1 for zeros": scale_one_for_zeros,
            "best constant codes": best_constant_codes,
        },
        refused=[("", lambda a: {"block_size": 33})],
    )


def test_codes_may_move_by_one_step_in_a_few_places() -> None:
    rule = Codes(moved_share={torch.bfloat16: 5e-3})
    context = Context(arguments={}, rank=0, world_size=1, dtype=torch.bfloat16)
    bits = torch.arange(10_000) % 120
    truth = bits.to(torch.uint8).view(torch.float8_e4m3fn)

    def moved(count: int, by: int) -> float:
        other = bits.clone()
        other[:count] += by
        return rule(truth, other.to(torch.uint8).view(torch.float8_e4m3fn), context)

    assert moved(0, 0) == 0
    assert moved(50, 1) <= 1
    assert moved(51, 1) > 1
    assert moved(1, 2) > 1
    negative = (truth.view(torch.uint8) | 0x80).view(torch.float8_e4m3fn)
    assert rule(negative, negative, context) == 0
    assert rule(truth, negative, context) > 1
    assert rule(truth[:1], negative[:1], context) == 0  # the two zeros
    top, nan = (torch.tensor([c], dtype=torch.uint8).view(torch.float8_e4m3fn) for c in (126, 127))
    assert rule(top, nan, context) > 1
