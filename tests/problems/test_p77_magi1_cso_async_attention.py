"""Problem 77, attention to ranges of keys: head by head over the whole sequence."""

import math

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs


def range_attention(ranks: list[Arguments]) -> list[Outputs]:
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
            k, v = kv[start:end, head * key_heads // query_heads].split(size, dim=-1)
            out[i, :, head] = (q[i, :, head] @ k.T / math.sqrt(size)).softmax(-1) @ v
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
    )
