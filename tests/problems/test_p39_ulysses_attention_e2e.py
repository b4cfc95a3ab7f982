"""Problem 39, Ulysses attention: one attention over the whole sequence."""

import math

import pytest
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments, joined


def attention_layer(ranks: list[Arguments], *, over: str = "positions", mask: bool = True) -> list[Outputs]:
    first = ranks[0]
    x = joined(ranks, "hidden_states", 1)
    q, k, v = ((x @ w.T).unflatten(-1, (first["num_heads"], -1)) for w in first["w_qkv"].double().chunk(3))
    if over == "heads":  # what upstream computes by mistake, with all heads in one group
        context = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ v
    else:
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
        if first["causal"] and mask:
            position = torch.arange(x.shape[1])
            scores = scores.masked_fill(position[:, None] < position[None, :], float("-inf"))
        context = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
    out = context.flatten(2) @ first["w_o"].double().T
    return [[part] for part in out.chunk(len(ranks), dim=1)]


class TestModel(ModelTests):
    spec = Spec(
        39,
        attention_layer,
        honest=0.75,
        zeros=10.0,
        widened_sizes=("odd",),
        exactness=1e-11,
        mistake_calls=tuple(range(6)),
        mistaken_once=5.0,
        mistaken_always=2.0,
        mistakes={
            "attention over heads": lambda ranks: attention_layer(ranks, over="heads"),
            "attention to own positions": lambda ranks: [attention_layer([a])[0] for a in ranks],
        },
        refused=[
            (
                "",
                lambda _: {
                    "hidden_states": torch.ones(2, 4, 6),
                    "w_qkv": torch.ones(18, 6),
                    "w_o": torch.ones(6, 6),
                    "num_heads": 3,
                },
            )
        ],
    )


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_attention_without_the_mask_is_refused(dtype: str) -> None:
    """In calls that have one."""
    spec, margins = TestModel.spec, []
    for call in range(6):
        ranks = spec.arguments(4, "tiny", dtype, call)
        wrong = spec.native(attention_layer(ranks, mask=False), dtype)
        margins.append(spec.worst(ranks, attention_layer(ranks), wrong, dtype))
    assert max(margins) > 5, margins


def test_calls_come_with_and_without_the_mask() -> None:
    assert 8 < sum(all_arguments(39, 4, "tiny", "fp32", call)[1]["causal"] for call in range(40)) < 32
