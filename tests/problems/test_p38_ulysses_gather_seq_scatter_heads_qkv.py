"""Problem 38, Ulysses layout switch of a fused QKV projection."""

from functools import partial

import torch
from harness import ModelTests, Spec
from model_ulysses import check_lengths, unpad
from on_ranks import Arguments, Outputs, all_arguments, joined


def qkv_to_heads(ranks: list[Arguments], mistake: bool = False) -> list[Outputs]:
    first, w = ranks[0], len(ranks)
    qkv = joined(ranks, "qkv_tensor", first["seq_dim"]).chunk(3, dim=-1)
    outputs = []
    for r in range(w):
        own = [unpad(t.chunk(w, dim=-1)[r], first["seq_dim"], first["unpadded_dim_size"], w, mistake) for t in qkv]
        outputs.append([torch.cat(own, dim=-1) if first["restore_shape"] else torch.stack(own, dim=-2)])
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        38,
        qkv_to_heads,
        honest=0.75,
        zeros=10.0,
        calls=(0, 2, 3, 4),  # all lengths
        mistakes={"cut to any length": partial(qkv_to_heads, mistake=True)},
        mistake_calls=tuple(range(9)),
        refused=[
            ("", lambda _: {"qkv_tensor": torch.ones(2, 4, 6), "seq_dim": 2}),
            ("", lambda _: {"qkv_tensor": torch.ones(2, 4, 9), "seq_dim": 1}),
        ],
    )


def test_calls_differ_in_lengths_and_shape() -> None:
    check_lengths(38)
    assert {all_arguments(38, 4, "tiny", "fp32", call)[1]["restore_shape"] for call in range(40)} == {True, False}
