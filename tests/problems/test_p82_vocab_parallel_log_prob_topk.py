"""Problem 82, log-probabilities after top-k and top-p: rows filtered by hand."""

import math

import pytest
import torch
from harness import ModelTests, Spec
from on_ranks import SECRET, Arguments, Outputs

from pkb.problems import get
from pkb.problems.base import DTYPES
from pkb.problems.draw import Draw
from pkb.problems.p82_vocab_parallel_log_prob_topk import CLEARANCE


def log_prob(row: list[float], target: int, top_k: int, top_p: float) -> float:
    """By hand: sort, keep k and their ties, drop from the small end while the sum is at most 1 - top_p."""
    kth = sorted(row, reverse=True)[top_k - 1]
    kept = sorted(i for i in range(len(row)) if row[i] >= kth)
    if top_p < 1:
        total = math.fsum(math.exp(row[i]) for i in kept)
        by_size = sorted(kept, key=lambda i: row[i])
        sums = [math.fsum(math.exp(row[i]) for i in by_size[: n + 1]) / total for n in range(len(by_size))]
        kept = [i for i, s in zip(by_size, sums, strict=True) if s > 1 - top_p or i == by_size[-1]]
        # The promise of the inputs: no cut is in doubt.
        assert min(abs(s - (1 - top_p)) for s in sums) > 0.99 * CLEARANCE * (1 - top_p)
        assert row[target] != row[kept[0]] or all(i in kept for i in by_size if row[i] == row[target])
    if target not in kept:
        return -math.inf
    return row[target] - math.log(math.fsum(math.exp(row[i]) for i in kept))


def log_prob_topk(ranks: list[Arguments]) -> list[Outputs]:
    first = ranks[0]
    logits = torch.cat([arguments["vocab_parallel_logits"].double() for arguments in ranks], dim=-1)
    rows, targets = logits.flatten(0, 1).tolist(), first["target"].flatten().tolist()
    values = [log_prob(row, t, first["top_k"], first["top_p"]) for row, t in zip(rows, targets, strict=True)]
    return [[torch.tensor(values, dtype=torch.float64).view_as(first["target"])] for _ in ranks]


class TestModel(ModelTests):
    spec = Spec(
        82,
        log_prob_topk,
        results=(torch.float32,),
        calls=(0, 1, 2, 5),
        widened=False,
        silent_raises=False,
    )


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(("top_k", "percent"), [(10, 90), (50, 95)])
def test_log_prob_inputs_leave_no_doubt(dtype: str, top_k: int, percent: int) -> None:
    """Sums rounded to the dtype at every step, or not at all, must keep the same logits; dropping ties must not."""
    size = {"batch": 2, "seq": 512, "vocab": 1000, "top_k": top_k, "top_p_percent": percent}
    draws = [
        Draw(secret=SECRET, call=0, rank=r, world_size=4, size=size, dtype=DTYPES[dtype], device=torch.device("cpu"))
        for r in range(4)
    ]
    drawn = [get(82).inputs(draw) for draw in draws]
    ranks = [{name: value for name, value in one.items() if isinstance(value, torch.Tensor)} for one in drawn]
    assert all(torch.equal(ranks[0]["target"], arguments["target"]) for arguments in ranks)
    logits = torch.cat([arguments["vocab_parallel_logits"] for arguments in ranks], dim=-1).flatten(0, 1)
    target = ranks[0]["target"].flatten()[:, None]
    ascending, index = logits.sort(-1)
    kth = ascending[:, -top_k, None]

    def answer(compute: torch.dtype, step: torch.dtype, *, ties: bool) -> torch.Tensor:
        stays = ascending >= kth
        if not ties:
            stays[:, :-top_k] = False
        kept_by_k = ascending.to(compute).masked_fill(~stays, float("-inf"))
        total = torch.zeros(len(logits), dtype=step)
        keep = torch.zeros_like(stays)
        for column, probability in enumerate(kept_by_k.softmax(-1).to(step).unbind(1)):
            total = total + probability
            keep[:, column] = total > torch.tensor(1 - percent / 100, dtype=step)
        keep[:, -1] = True
        keep &= stays
        kept = torch.full_like(logits, float("-inf"), dtype=torch.float64)
        kept.scatter_(1, index, ascending.double().masked_fill(~keep, float("-inf")))
        return kept.log_softmax(-1).gather(1, target)[:, 0]

    exact = answer(torch.float64, torch.float64, ties=True)
    own = DTYPES[dtype]
    torch.testing.assert_close(answer(own, own, ties=True), exact, rtol=0, atol=1e-9)
    without_ties = answer(torch.float64, torch.float64, ties=False)
    assert float(((without_ties - exact).abs() > 1e-3).float().mean()) > 0.1
    assert 0.2 < float(exact.isinf().float().mean()) < 0.6
    assert len(exact[exact.isfinite()].unique()) > 300
    slices = (index[:, -top_k:] // 250).double()
    alone = (slices.amax(-1) == slices.amin(-1)).float().mean()
    assert 0.05 < float(alone) < 0.9  # rows with all leaders on one rank, and others
