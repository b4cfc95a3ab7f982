"""83: as the baseline, where a rank's largest logits are looked for in its best blocks of 16 columns."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.leading_logits import SPARE, filter_rows, gather_rows, largest_by_blocks


def alternative(
    vocab_parallel_logits: torch.Tensor,
    target: torch.Tensor,
    tp_group: dist.ProcessGroup | None = None,
    top_k: int | None = None,
    top_p: float = 1.0,
    chunk_size: int = 1,
) -> torch.Tensor:
    if top_k:
        slices = vocab_parallel_logits.flatten(0, 1)
        rows = filter_rows(slices, largest_by_blocks(slices, SPARE * top_k, 16), target, tp_group, top_k, top_p)
        own = torch.where(rows.target >= rows.smallest, rows.target.float() - rows.lse, float("-inf"))
        everything = gather_rows([own, rows.doubtful], tp_group)
        if not bool(everything[:, 1].any()):
            return everything[:, 0].reshape(target.shape)
    return get(83).reference(vocab_parallel_logits, target, tp_group, top_k, top_p, chunk_size)  # type: ignore[no-any-return]


PROBLEM = replace(get(83), id=8301, name="best_of_blocks", baseline=alternative)
