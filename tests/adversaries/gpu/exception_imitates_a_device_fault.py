"""M20: raises the error of a faulted kernel itself, on a device that works."""
# problem: 1
# ranks: 2
# plan: quick
# expect: runtime_error
# rule: AcceleratorError
# platform: gpu

import torch


def solution(tensor):
    raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
