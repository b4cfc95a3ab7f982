"""73: logits are shifted in place and their exponentials added up in one pass by torch.compile."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.compiled import compiled


@compiled
def shift_and_sum(logits: torch.Tensor, row_max: torch.Tensor) -> torch.Tensor:
    logits.sub_(row_max[..., None])
    return logits.exp().sum(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def alternative(
    vocab_parallel_logits: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    width = vocab_parallel_logits.shape[-1]
    column = target - dist.get_rank(group) * width
    elsewhere = (column < 0) | (column >= width)
    row_max = vocab_parallel_logits.amax(dim=-1)
    dist.all_reduce(row_max, op=dist.ReduceOp.MAX, group=group)
    exp_sum = shift_and_sum(vocab_parallel_logits, row_max)
    predicted = vocab_parallel_logits.gather(-1, column.masked_fill_(elsewhere, 0)[..., None])[..., 0]
    sums = torch.stack([predicted.masked_fill_(elsewhere, 0.0).to(exp_sum.dtype), exp_sum])
    dist.all_reduce(sums, op=dist.ReduceOp.SUM, group=group)
    return (sums[1].log() - sums[0]).to(row_max.dtype)


PROBLEM = replace(get(73), id=7302, name="one_pass", baseline=alternative)
