"""S19: a kernel that always fails with a library call behind it. It is right, and the verdict says what did the
work: communication is observed, not read from the text.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: library
# platform: cpu

import torch.distributed as dist


def _kernel(tensor):
    raise RuntimeError("no such instruction")


def solution(tensor):
    try:
        return _kernel(tensor)
    except Exception:
        out = tensor.clone()
        dist.all_reduce(out)
        return out
