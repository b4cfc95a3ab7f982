"""torch's fused operators over symmetric memory."""
# expect: library

import torch


def solution(x, group_name):
    return torch.ops.symm_mem.one_shot_all_reduce(x, "sum", group_name)  # <- library
