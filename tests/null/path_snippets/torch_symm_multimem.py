"""torch's NVLS all-reduce."""
# expect: library nvls

import torch


def solution(x, group_name):
    torch.ops.symm_mem.multimem_all_reduce_(x, "sum", group_name)  # <- library nvls
    return x
