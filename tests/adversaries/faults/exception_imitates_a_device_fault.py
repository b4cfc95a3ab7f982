"""M20: raises with the words of a kernel that faulted, and the class by which torch says so. A platform without a GPU has
no device that faults, and on any platform a `raise` of the candidate's own is no fault of the device.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: runtime_error
# rule: AcceleratorError
# platform: cpu

import torch


def solution(tensor):
    raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
