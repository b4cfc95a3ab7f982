"""A CUDA kernel on a platform that has no GPU: said before anything is started."""
# problem: 1
# ranks: 2
# plan: quick
# expect: unsupported
# stage: inspect
# platform: cpu

from pkb import kit

SOURCE = r"""
extern "C" __global__ void nothing() {}
"""
KERNEL = kit.compile(SOURCE, name="nothing").kernel("nothing")


def solution(tensor):
    KERNEL[1, 1]()
    return tensor
