"""A failed assertion on the device (trap)."""
# problem: 1
# ranks: 2
# plan: quick
# expect: crash
# platform: gpu

import torch
from pkb import kit

SOURCE = r"""
extern "C" __global__ void give_up() { asm volatile("trap;"); }
"""
KERNEL = kit.compile(SOURCE, name="give_up").kernel("give_up")


def solution(tensor):
    KERNEL[1, 32]()
    return torch.zeros_like(tensor)
