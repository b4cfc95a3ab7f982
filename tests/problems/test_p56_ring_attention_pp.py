"""Problem 56, ring attention in pipeline stages: the layers one after the other, undivided."""

import torch
from harness import ModelTests, Spec
from model_attention import attention, check_by_heads
from on_ranks import Arguments, Outputs, Worlds, joined, wide


def ring_attention_pp(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    cp = max(1, len(ranks) // 2)
    x = joined(ranks[:cp], "hidden_states", 1)
    outputs: list[Outputs] = []
    for stage in range(len(ranks) // cp):
        a = ranks[stage * cp]
        if mistake == "own hidden states":
            x = joined(ranks[:cp], "hidden_states", 1)
        q, k, v = ((x @ w.T).unflatten(-1, (a["num_heads"], -1)) for w in wide(a["w_qkv"]).chunk(3))
        if mistake == "own block of keys":
            pieces = zip(*(t.chunk(cp, dim=1) for t in (q, k, v)), strict=True)
            context = torch.cat(
                [attention(*piece, causal=a["causal"], scale=a["softmax_scale"]) for piece in pieces], dim=1
            )
        else:
            context = attention(q, k, v, causal=a["causal"], scale=a["softmax_scale"])
        x = context.flatten(2) @ wide(a["w_o"]).T
        outputs += [[block] for block in x.chunk(cp, dim=1)]
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        56,
        ring_attention_pp,
        every_rank=True,
        spoilt=1.2,
        large_bytes=20e9,
        mistaken_once=1.5,
        mistaken_always=1.5,
        mistake_cases=((4, "tiny", "bf16"), (4, "odd", "bf16")),
        mistakes={
            "own hidden states": lambda ranks: ring_attention_pp(ranks, "own hidden states"),
            "own block of keys": lambda ranks: ring_attention_pp(ranks, "own block of keys"),
        },
        refused=[(r"(\d|fit)", lambda _: {"num_heads": 5})],
    )


def test_attention_by_heads_is_the_same(world: Worlds) -> None:
    check_by_heads(world, 56)
