"""A null pointer is read: the process dies of SIGSEGV in a call. The judge sees the channel close and the exit
status, and blames that rank.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: crash
# stage: correctness
# platform: cpu

import ctypes


def solution(tensor):
    return ctypes.string_at(0)
