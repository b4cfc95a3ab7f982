"""M19: rank 0 enters a library collective that the others never enter."""
# problem: 1
# ranks: 2
# plan: quick
# call_limit_s: 4
# expect: deadlock|runtime_error
# platform: cpu

import torch.distributed as dist


def solution(tensor):
    out = tensor.clone()
    if dist.get_rank() == 0:
        dist.all_reduce(out)
    return out
