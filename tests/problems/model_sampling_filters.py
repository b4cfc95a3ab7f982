"""Logits filtered by top-k and top-p, row by row."""

import math

import torch
from on_ranks import SECRET, Arguments, joined

from pkb.problems.base import DTYPES
from pkb.problems.draw import Draw
from pkb.problems.filtered_logits import CLEARANCE, draw_rows, is_clear, plan_rows


def kept_entries(row: list[float], top_k: int, top_p: float) -> list[int]:
    """By hand: sort, keep k and their ties, drop from the small end while the sum is at most 1 - top_p."""
    kth = sorted(row, reverse=True)[top_k - 1]
    by_size = sorted((i for i in range(len(row)) if row[i] >= kth), key=lambda i: row[i])
    if top_p == 1:
        return by_size
    total = math.fsum(math.exp(row[i]) for i in by_size)
    sums = [math.fsum(math.exp(row[i]) for i in by_size[: n + 1]) / total for n in range(len(by_size))]
    kept = [i for i, s in zip(by_size, sums, strict=True) if s > 1 - top_p or i == by_size[-1]]
    # The promise of the inputs: no cut is in doubt, and none divides a tie.
    assert min(abs(s - (1 - top_p)) for s in sums) > 0.99 * CLEARANCE * (1 - top_p)
    assert all(row[i] < row[kept[0]] for i in by_size if i not in kept)
    return kept


def filtered_rows(ranks: list[Arguments]) -> tuple[list[list[float]], list[int], list[list[int]]]:
    first = ranks[0]
    rows = joined(ranks, "vocab_parallel_logits", -1).flatten(0, 1).tolist()
    return rows, first["target"].flatten().tolist(), [kept_entries(r, first["top_k"], first["top_p"]) for r in rows]


def check_no_doubt(dtype: str, top_k: int, percent: int) -> None:
    """Sums rounded to the dtype at every step must keep the same logits, and what is kept must vary."""
    size = {"top_k": top_k}
    rows = []
    for rank in range(4):
        draw = Draw(
            secret=SECRET, call=3, rank=rank, world_size=4, size=size, dtype=DTYPES[dtype], device=torch.device("cpu")
        )
        rows.append(draw_rows(draw, tokens=256, width=100, top_k=top_k, top_p=percent / 100))
    assert all(torch.equal(r.target, rows[0].target) for r in rows)
    logits, dropped = torch.cat([r.logits for r in rows], dim=1), 1 - percent / 100
    arguments = [{"vocab_parallel_logits": r.logits[None], "target": rows[0].target, "top_k": top_k} for r in rows]
    arguments[0]["top_p"] = percent / 100
    _, targets, kept = filtered_rows(arguments)  # asserts that cuts are clear

    ascending, index = logits.sort(dim=1)
    stays = ascending >= ascending[:, -top_k, None]
    probabilities = ascending.masked_fill(~stays, float("-inf")).softmax(-1)
    total = torch.zeros(len(logits), dtype=logits.dtype)
    for token_total, column in zip(range(logits.shape[1]), probabilities.unbind(1), strict=True):
        total = total + column
        stays[:, token_total] &= total > torch.tensor(dropped, dtype=logits.dtype)
    stays[:, -1] = True
    for token in range(len(logits)):
        assert sorted(index[token, stays[token]].tolist()) == sorted(kept[token])
    hit = sum(target in own for target, own in zip(targets, kept, strict=True)) / len(kept)
    assert 0.3 < hit < 0.9
    assert len({len(own) for own in kept}) > 1


def count_unclear_rows(top_k: int, top_p: float, tokens: int) -> int:
    draw = Draw(
        secret=SECRET, call=0, rank=0, world_size=1, size={}, dtype=torch.bfloat16, device=torch.device("cpu")
    )  # fmt: skip
    rows = plan_rows(draw, tokens=tokens, vocab=400, top_k=top_k, top_p=top_p)
    return int((~is_clear(rows.values, rows.values[:, top_k - 1, None], 1 - top_p)).sum())
