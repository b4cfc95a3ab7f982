"""Problem 54, ring attention: one attention over the whole sequence."""

import math
from functools import partial

import torch
from harness import ModelTests, Spec
from model_attention import attention, check_by_heads, check_masks
from on_ranks import Arguments, Outputs, Worlds


def ring_attention(ranks: list[Arguments], scaled: bool = True, largest: float = math.inf) -> list[Outputs]:
    q, k, v = (torch.cat([arguments[name].double() for arguments in ranks], dim=1) for name in "qkv")
    scale = ranks[0]["softmax_scale"] if scaled else None
    out = attention(q, k, v, causal=ranks[0]["causal"], scale=scale, largest=largest)
    return [[block] for block in out.chunk(len(ranks), dim=1)]


class TestModel(ModelTests):
    spec = Spec(
        54,
        ring_attention,
        calls=(0, 1, 2, 5),
        exactness=1e-12,
        mistakes={
            "scores clamped at 11": partial(ring_attention, largest=11.0),
            "the scale ignored": partial(ring_attention, scaled=False),
        },
        mistake_cases=((4, "tiny", "bf16"), (4, "paper", "bf16"), (8, "paper", "bf16")),
    )


def test_attention_by_heads_is_the_same(world: Worlds) -> None:
    check_by_heads(world, 54)


def test_calls_come_with_and_without_the_mask() -> None:
    check_masks(54)
