"""Collectives in several spellings."""
# expect: library

import torch
import torch.distributed as dist
from torch.distributed import all_to_all_single as exchange
import torch.distributed._functional_collectives as funcol


def solution(x, group):
    y = torch.empty_like(x)
    exchange(y, x, group=group)  # <- library
    ops = [dist.P2POp(dist.isend, x, 1), dist.P2POp(dist.irecv, y, 1)]  # <- library
    for work in dist.batch_isend_irecv(ops):  # <- library
        work.wait()
    return funcol.all_reduce(y, "sum", group)  # <- library
