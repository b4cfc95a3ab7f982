"""Problem 69, ranks of positive scores among negative ones, counted one by one."""

from functools import partial

import pytest
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments


def negative_scoring(ranks: list[Arguments], mistake: bool = False) -> list[Outputs]:
    """Mistake: scores are compared instead of their rounded sigmoids."""
    positions = []
    for a in ranks:
        positive, negative = a["local_pos_scores"].double(), a["local_neg_scores"].double()
        if not mistake:
            dtype = a["local_pos_scores"].dtype
            positive, negative = (1 / (1 + (-s).exp()) for s in (positive, negative))
            positive, negative = positive.to(dtype), negative.to(dtype)
        positions += [1 + sum(n > p for n in row) for p, row in zip(positive.tolist(), negative.tolist(), strict=True)]
    return [[torch.tensor(positions)] for _ in ranks]


class TestModel(ModelTests):
    spec = Spec(
        69,
        negative_scoring,
        honest=0.7,
        widened_sizes=("odd",),
        exactness=1e-10,
        large_bytes=12e9,
        more_cases=((1, "odd", "fp32"),),
        mistakes={"scores compared, not their rounded sigmoids": partial(negative_scoring, mistake=True)},
        mistake_cases=[(w, size, dtype) for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp32", "bf16")],
        widened=False,
    )


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_no_sigmoid_is_in_doubt(dtype: str) -> None:
    """Sigmoids wrong by a thousandth of a unit in the last place (float32: by four units) give the same ranks."""
    ranks = all_arguments(69, 2, "paper", dtype, 0)
    for a in ranks:
        scores = torch.cat([a["local_pos_scores"][:, None], a["local_neg_scores"]], dim=1)
        exact = torch.sigmoid(scores.double())
        answers = []
        for off in (-1e-7, 0.0, 1e-7):
            rough = (exact * (1 + off)).clamp(max=1.0)
            rough = rough if dtype == "fp32" else rough.to(scores.dtype)
            greater = rough[:, 1:] > rough[:, :1] * (1 + 4 * 6e-8 if dtype == "fp32" else 1)
            answers.append(greater.sum(1))
        assert all(torch.equal(answers[1], other) for other in answers)
        rounded = torch.sigmoid(scores)
        assert torch.equal(answers[1], (rounded[:, 1:] > rounded[:, :1]).sum(1))
        saturated = float((rounded == 1).double().mean())
        assert 0.02 < saturated < 0.2
