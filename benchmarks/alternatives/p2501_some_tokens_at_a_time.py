"""25: logits of 1024 tokens at a time, which never all exist."""

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from pkb.problems import get


def alternative(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    labels: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    ignore_index: int = -100,
) -> tuple[torch.Tensor, Any, torch.Tensor, torch.Tensor, torch.Tensor]:
    wide = torch.promote_types(hidden_states.dtype, torch.float32)
    flat_labels, flat = labels.reshape(-1), hidden_states.reshape(-1, hidden_states.shape[-1])
    nll = torch.cat([
        torch.nn.functional.cross_entropy(rows @ weight.t(), wanted, ignore_index=ignore_index, reduction="none")
        for rows, wanted in zip(flat.split(1024), flat_labels.split(1024), strict=True)
    ])  # fmt: skip
    valid, old = flat_labels != ignore_index, old_logprobs.reshape(-1)
    log_ratio = torch.where(valid, -nll - old, torch.zeros_like(old)).clamp(-20.0, 20.0)
    ratio = log_ratio.exp()
    loss = -torch.where(valid, ratio * advantages.reshape(-1), torch.zeros_like(ratio))
    kl = torch.where(valid, ratio - log_ratio - 1, torch.zeros_like(ratio))
    sums = torch.stack([values.sum(dtype=wide) for values in (valid, loss, ratio * valid, kl, nll)])
    infinity = torch.full_like(ratio, float("inf"))
    smallest = torch.where(valid, ratio, infinity).amin().to(wide)
    largest = torch.where(valid, ratio, -infinity).amax().to(wide)
    dist.all_reduce(sums, op=dist.ReduceOp.SUM)
    dist.all_reduce(smallest, op=dist.ReduceOp.MIN)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    mean_loss, ratio_mean, kl_mean, nll_mean = sums[1:] / sums[0].clamp(min=1.0)
    metrics = torch.stack([ratio_mean, smallest, largest, kl_mean, nll_mean])
    return mean_loss, None, -nll.view(labels.shape), loss.view(labels.shape), metrics


PROBLEM = replace(get(25), id=2501, name="some_tokens_at_a_time", baseline=alternative)
