"""Problem 77, attention to ranges of keys: head by head over the whole sequence."""

import math
from functools import partial

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments


def range_attention(ranks: list[Arguments], tiled: bool = False, largest: float = math.inf) -> list[Outputs]:
    """Mistakes: on each rank, key heads serve its query heads in turn; scores above `largest` are clamped."""
    w, first = len(ranks), ranks[0]
    ranges, clip = first["cp_shuffle_num"], first["clip_token_nums"]
    q = torch.stack(
        [a["query"].double().unflatten(0, (ranges, -1)) for a in ranks], dim=1
    )  # range, rank, token, head, D
    kv = torch.stack([a["key_value"].double().unflatten(0, (ranges, -1)) for a in ranks], dim=1)
    part, query_heads, size = q.shape[2:]
    q, kv = q.flatten(1, 2), kv.flatten(1, 2)[:, :clip].flatten(0, 1)
    key_heads = kv.shape[1]
    out = torch.zeros_like(q)
    for i, (start, end) in enumerate(first["k_ranges"].tolist()):
        for head in range(query_heads):
            # Query heads are served in equal, consecutive groups, however the ranks share the work.
            server = head * key_heads // query_heads
            if tiled and key_heads > w:
                block, place = divmod(head, query_heads // w)
                server = block * (key_heads // w) + place % (key_heads // w)
            k, v = kv[start:end, server].split(size, dim=-1)
            scores = q[i, :, head] @ k.T / math.sqrt(size)
            out[i, :, head] = scores.clamp(max=largest).softmax(-1) @ v
    blocks = out.unflatten(1, (w, part))
    return [[blocks[:, r].flatten(0, 1)] for r in range(w)]


class TestModel(ModelTests):
    spec = Spec(
        77,
        range_attention,
        honest=0.85,
        spoilt=1.2,
        calls=(0, 1),
        widened_sizes=("odd",),
        mistakes={"scores clamped at 11": partial(range_attention, largest=11.0)},
        mistake_calls=(0, 1),
        mistake_cases=[(w, size, dtype) for w in (2, 4) for size in ("tiny", "odd") for dtype in ("bf16", "fp32")],
    )


def test_a_rank_of_four_has_several_key_heads_or_shares_one() -> None:
    """In one size the order in which key heads serve query heads matters, in the other they are repeated."""
    heads = {size: all_arguments(77, 4, size, "bf16", 0)[0]["key_value"].shape[1] for size in ("tiny", "odd")}
    assert heads["tiny"] >= 8
    assert heads["odd"] < 4
    ranks = all_arguments(77, 4, "tiny", "bf16", 0)
    right, wrong = range_attention(ranks), range_attention(ranks, tiled=True)
    assert all(float((a[0] - b[0]).norm() / a[0].norm()) > 0.1 for a, b in zip(right, wrong, strict=True))
