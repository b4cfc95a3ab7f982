"""CUDA with a mistake in it, found before any rank starts."""
# problem: 1
# ranks: 2
# plan: quick
# expect: compile_error
# stage: build
# platform: gpu

from pkb import kit

SOURCE = r"""
extern "C" __global__ void broken(float* out) { out[threadIdx.x] = missing; }
"""
KERNEL = kit.compile(SOURCE, name="broken").kernel("broken")


def solution(tensor):
    return tensor
