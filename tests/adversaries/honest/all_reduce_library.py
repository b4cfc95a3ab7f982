"""M6, honest: the library's own collective. Right, and said to be the library."""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: library
# platform: cpu

import torch.distributed as dist


def solution(tensor):
    out = tensor.clone()
    dist.all_reduce(out)
    return out
