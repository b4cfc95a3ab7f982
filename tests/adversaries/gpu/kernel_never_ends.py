"""M19: a kernel that spins for ever on one rank. Killing the process must free the GPU for the next evaluation."""
# problem: 1
# ranks: 2
# plan: quick
# call_limit_s: 6
# expect: deadlock
# platform: gpu

import torch
import torch.distributed as dist
from pkb import kit

SOURCE = r"""
extern "C" __global__ void spin(volatile int* flag) { while (*flag == 0) {} }
"""
KERNEL = kit.compile(SOURCE, name="spin").kernel("spin")
_flag = []


def solution(tensor):
    if not _flag:
        _flag.append(torch.zeros(1, dtype=torch.int32, device=tensor.device))
    if dist.get_rank() == 1:
        KERNEL[1, 1](_flag[0])
    return torch.zeros_like(tensor)
