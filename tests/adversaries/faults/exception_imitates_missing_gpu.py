"""M20: raises with the words of a machine without a GPU, to be counted as unsupported in place of failed. Only
the place where an exception was raised may tell.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: runtime_error
# platform: cpu


def solution(tensor):
    raise RuntimeError("No CUDA GPUs are available")
