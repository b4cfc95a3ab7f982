"""M20: has torch raise the words of a machine without a GPU, so that the exception comes out of a library's frame. Neither
the text nor the file it was raised in may tell: only asking for a device does (`needs_a_gpu`).
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: runtime_error
# rule: AssertionError
# platform: cpu

import torch


def solution(tensor):
    torch._assert(False, "Found no NVIDIA driver on your system")
    return tensor
