"""Forks processes that never end (bounded here, in case nothing stops it). The judge counts the family and ends
it with its namespace. Each fork copies the page tables of a process that has torch loaded: on a machine so busy that the 401st
does not come within the limit of a call, the call is over its time instead.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: crash|deadlock
# platform: cpu

import os
import time


def solution(tensor):
    for _ in range(1000):
        try:
            if getattr(os, "krof"[::-1])() == 0:
                time.sleep(60)
                os._exit(0)
        except OSError:
            break
    time.sleep(3)
    return tensor
