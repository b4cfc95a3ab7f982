"""Problem 55, ring attention with tensor parallelism: one layer with all heads and all positions."""

import torch
from harness import ModelTests, Spec
from model_attention import attention, check_masks
from on_ranks import Arguments, Outputs


def ring_attention_tp(ranks: list[Arguments]) -> list[Outputs]:
    """One layer with all heads and all positions; ranks 2c and 2c + 1 hold block c."""
    tp = min(2, len(ranks))
    hidden = torch.cat([arguments["hidden_states"].double() for arguments in ranks[::tp]], dim=1)
    out = torch.zeros_like(hidden)
    for arguments in ranks[:tp]:
        heads = arguments["num_heads"] // tp
        q, k, v = ((hidden @ w.T).unflatten(-1, (heads, -1)) for w in arguments["w_qkv"].double().chunk(3))
        out += (
            attention(q, k, v, causal=arguments["causal"], scale=arguments["softmax_scale"]).flatten(2)
            @ arguments["w_o"].double().T
        )
    return [[block] for block in out.chunk(len(ranks) // tp, dim=1) for _ in range(tp)]


class TestModel(ModelTests):
    spec = Spec(
        55,
        ring_attention_tp,
        calls=(0, 1, 2, 5),
        exactness=1e-12,
    )


def test_calls_come_with_and_without_the_mask() -> None:
    check_masks(55)
