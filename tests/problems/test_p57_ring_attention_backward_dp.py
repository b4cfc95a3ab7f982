"""Problem 57, backward pass of ring attention: the whole sequence, averaged over replicas."""

import math

import pytest
import torch
from harness import ModelTests, Spec
from model_attention import attention
from on_ranks import Arguments, Outputs, all_arguments, joined


def ring_attention_backward(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    cp = max(1, len(ranks) // 2)
    replicas = []
    for start in range(0, len(ranks), cp):
        ring = ranks[start : start + cp]
        q, k, v, dout, out = (joined(ring, name, 1) for name in ("q", "k", "v", "dout", "out"))
        scale = ring[0]["softmax_scale"] or 1 / math.sqrt(q.shape[-1])
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
        if ring[0]["causal"]:
            scores = scores.masked_fill(torch.ones(scores.shape[2:]).triu(1) > 0, float("-inf"))
        p = (scores - joined(ring, "softmax_lse", 2)[..., None]).exp()
        d_p = torch.einsum("bqhd,bkhd->bhqk", dout, v)
        d_s = p * (d_p - (dout * out).sum(-1).transpose(1, 2)[..., None]) * scale
        dq, dk = torch.einsum("bhqk,bkhd->bqhd", d_s, k), torch.einsum("bhqk,bqhd->bkhd", d_s, q)
        replicas.append((dq, dk, torch.einsum("bhqk,bqhd->bkhd", p, dout)))
    outputs = []
    for rank in range(len(ranks)):
        own = (
            replicas[rank // cp]
            if mistake == "no average"
            else [torch.stack(g).mean(0) for g in zip(*replicas, strict=True)]
        )
        outputs.append([gradient.chunk(cp, dim=1)[rank % cp] for gradient in own])
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        57,
        ring_attention_backward,
        every_rank=True,
        spoilt=1.2,
        large_bytes=20e9,
        mistaken_once=1.5,
        mistaken_always=1.5,
        mistake_cases=((4, "tiny", "bf16"), (4, "odd", "bf16")),
        mistakes={"no average": lambda ranks: ring_attention_backward(ranks, "no average")},
        refused=[(r"(\d|fit)", lambda _: {"softmax_lse": torch.zeros(2, 3)})],
    )


@pytest.mark.parametrize("causal", [False, True])
def test_attention_backward_is_the_gradient(causal: bool) -> None:
    """Of the model of 57 and its inputs: with the out and lse of the whole sequence, both are the true gradient's."""
    seen = 0
    for call in range(6):
        ranks = all_arguments(57, 4, "odd", "fp64", call)
        if ranks[0]["causal"] != causal:
            continue
        seen += 1
        gradients = []
        for ring in (ranks[:2], ranks[2:]):
            q, k, v = (torch.cat([a[name] for a in ring], 1).requires_grad_() for name in "qkv")
            dout = torch.cat([a["dout"] for a in ring], 1)
            out = attention(q, k, v, causal=causal, scale=ring[0]["softmax_scale"])
            torch.testing.assert_close(torch.cat([a["out"] for a in ring], 1), out.detach(), rtol=1e-10, atol=1e-12)
            gradients.append(torch.autograd.grad((out * dout).sum(), (q, k, v)))
        for rank, outputs in enumerate(ring_attention_backward(ranks)):
            for got, first, second in zip(outputs, *gradients, strict=True):
                want = ((first + second) / 2).chunk(2, dim=1)[rank % 2]
                torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)
    assert seen
