"""Problem 83, log-probabilities after top-k and top-p, in chunks: rows filtered by hand."""

import math

import pytest
import torch
from harness import ModelTests, Spec
from model_sampling_filters import check_no_doubt, count_unclear_rows, filtered_rows
from on_ranks import Arguments, Outputs


def log_prob(ranks: list[Arguments]) -> list[Outputs]:
    values = []
    for row, target, kept in zip(*filtered_rows(ranks), strict=True):
        total = math.log(math.fsum(math.exp(row[i]) for i in kept))
        values.append(row[target] - total if target in kept else -math.inf)
    return [[torch.tensor(values, dtype=torch.float64).view_as(ranks[0]["target"])] for _ in ranks]


class TestModel(ModelTests):
    spec = Spec(
        83,
        log_prob,
        results=(torch.float32,),
        honest=0.85,
        spoilt=1.2,
        calls=(0, 1),
        widened_sizes=("odd",),
    )


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(("top_k", "percent"), [(5, 60), (7, 60), (10, 90), (13, 85), (50, 95)])
def test_inputs_leave_no_doubt(dtype: str, top_k: int, percent: int) -> None:
    """Of this problem and of 84, which has the same."""
    check_no_doubt(dtype, top_k, percent)


@pytest.mark.parametrize(("top_k", "percent"), [(5, 60), (7, 60), (10, 90), (13, 85), (50, 95)])
def test_no_row_of_thousands_has_an_unclear_cut(top_k: int, percent: int) -> None:
    assert count_unclear_rows(top_k, percent / 100, tokens=4096) == 0
