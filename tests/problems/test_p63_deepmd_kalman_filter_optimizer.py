"""Problem 63, Kalman filter optimizer: one gain over all blocks of all ranks."""

from functools import partial

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments


def kalman_filter(ranks: list[Arguments], mistake: bool = False) -> list[Outputs]:
    """Mistake: lambda is added once, not once for every block. The lists are left as they were, which is allowed."""
    lam, nue = ranks[0]["kalman_lambda"], ranks[0]["kalman_nue"]
    d = lam if mistake else 0.0
    for a in ranks:
        for h, p in zip(a["H"], a["P"], strict=True):
            d += float(torch.einsum("ix,ij,jx->", h, p, h)) + (0.0 if mistake else lam)
    weights = [
        w + a["error"] / d * (p @ h) for a in ranks for h, w, p in zip(a["H"], a["weights"], a["P"], strict=True)
    ]
    results: list[Outputs] = []
    for a in ranks:
        new_p = [(p - torch.outer((p @ h)[:, 0], (h.T @ p)[0]) / d) / lam for h, p in zip(a["H"], a["P"], strict=True)]
        next_lambda = torch.tensor(nue * lam + (1 - nue), dtype=torch.float64)
        first = len(weights) // len(ranks) * len(results)
        mine = weights[first : first + len(a["weights"])]
        results.append([*weights, *new_p, next_lambda, *mine, *new_p])
    return results


class TestModel(ModelTests):
    spec = Spec(
        63,
        kalman_filter,
        dtypes=("fp64",),
        honest=0.7,
        widened_sizes=("odd",),
        exactness=1e-10,
        large_bytes=12e9,
        more_cases=((1, "odd", "fp64"),),
        mistakes={"lambda added once": partial(kalman_filter, mistake=True)},
        mistake_cases=[(w, size, dtype) for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp64",)],
    )


def test_kalman_lists_may_be_edited_or_left() -> None:
    spec = TestModel.spec
    ranks = all_arguments(63, 2, "tiny", "fp64", 0)
    truth = kalman_filter(ranks)
    left = [[*own[: -2 * len(a["P"])], *a["weights"], *a["P"]] for own, a in zip(truth, ranks, strict=True)]
    assert spec.worst(ranks, truth, truth, "fp64") == 0
    assert spec.worst(ranks, truth, left, "fp64") == 0
    left[1][-1] = left[1][-1] * 1.001
    assert spec.worst(ranks, truth, left, "fp64") > 1
