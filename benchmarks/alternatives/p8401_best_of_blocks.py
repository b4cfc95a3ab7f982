"""84: as the baseline, where a rank's largest logits are looked for in its best blocks of 16 columns."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.leading_logits import SPARE, filter_rows, gather_rows, largest_by_blocks


def alternative(
    vocab_parallel_logits: torch.Tensor,
    target: torch.Tensor,
    grad_output: torch.Tensor,
    tp_group: dist.ProcessGroup | None = None,
    top_k: int | None = None,
    top_p: float = 1.0,
    chunk_size: int = 1,
) -> torch.Tensor:
    if top_k:
        slices, targets = vocab_parallel_logits.flatten(0, 1), target.reshape(-1, 1)
        leaders = largest_by_blocks(slices, SPARE * top_k, 16)
        rows = filter_rows(slices, leaders, targets, tp_group, top_k, top_p)
        smallest, lse, doubtful = gather_rows([rows.smallest, rows.lse, rows.doubtful], tp_group).split(1, dim=1)
        values = leaders.values.float()
        is_target = leaders.columns + dist.get_rank(tp_group) * slices.shape[1] == targets
        gradient = (is_target.float() - (values - lse).exp()) * grad_output.reshape(-1, 1).to(torch.float32)
        result = torch.zeros(slices.shape, dtype=torch.float32, device=slices.device)
        result.scatter_(1, leaders.columns, gradient.masked_fill_(values < smallest, 0.0))
        if not bool(doubtful.any()):
            return result.view(vocab_parallel_logits.shape)
    reference = get(84).reference
    return reference(vocab_parallel_logits, target, grad_output, tp_group, top_k, top_p, chunk_size)  # type: ignore[no-any-return]


PROBLEM = replace(get(84), id=8401, name="best_of_blocks", baseline=alternative)
