"""Attention over one undivided sequence."""

import math
import sys
from unittest import mock

import torch
from on_ranks import Worlds, all_arguments, ready_arguments

from pkb.problems import get


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool,
    scale: float | None = None,
    largest: float = math.inf,
) -> torch.Tensor:
    """(B, positions, heads, head size), over one undivided sequence. Scores above `largest` are clamped, by mistake."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    scores = scores.clamp(max=largest)
    if causal:
        position = torch.arange(q.shape[1])
        scores = scores.masked_fill(position[:, None] < position[None, :], float("-inf"))
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)


def run_by_heads(rank: int, world_size: int, number: int) -> list[tuple[torch.Tensor, torch.Tensor, set[int]]]:
    """On a rank: what the reference returns; what it returns when the scores of one head are all that it may hold; and of how
    many heads at a time it then made products."""
    problem = get(number)
    assert problem.reference_source.count("2**32") == 1
    frugal = dict(vars(sys.modules[problem.reference.__module__]))
    exec(problem.reference_source.replace("2**32", "1"), frugal)
    results = []
    for call in (0, 1, 2, 5):
        arguments = ready_arguments(number, rank, world_size, "odd", "fp32", call)
        whole = problem.reference(**arguments)
        with mock.patch.object(torch, "matmul", wraps=torch.matmul) as matmul:
            by_heads = frugal["solution"](**arguments)
        heads = {one.args[0].shape[1] for one in matmul.call_args_list if one.args[0].dim() == 4}
        results.append((whole, by_heads, heads))
    return results


def check_by_heads(world: Worlds, number: int) -> None:
    """Head by head, where the scores of all would not fit, the reference computes the same."""
    for results in world(4).call(run_by_heads, number):
        for whole, by_heads, heads in results:
            assert heads == {1}
            torch.testing.assert_close(by_heads, whole, rtol=1e-5, atol=1e-6)


def check_masks(number: int) -> None:
    """Some calls are causal, and some are not."""
    causal = [all_arguments(number, 4, "tiny", "fp32", call)[3]["causal"] for call in range(20)]
    assert 4 <= sum(causal) <= 16
