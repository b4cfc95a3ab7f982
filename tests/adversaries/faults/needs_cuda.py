"""CUDA through a library that wants a GPU's driver, on a platform that has no GPU: said before anything is started."""
# problem: 1
# ranks: 2
# plan: quick
# expect: unsupported
# stage: inspect
# platform: cpu

import cupy

SOURCE = r"""
extern "C" __global__ void nothing() {}
"""
KERNEL = cupy.RawKernel(SOURCE, "nothing")


def solution(tensor):
    KERNEL((1,), (1,), ())
    return tensor
