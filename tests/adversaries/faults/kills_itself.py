"""SIGKILL to its own process."""
# problem: 1
# ranks: 2
# plan: quick
# expect: crash
# platform: cpu

import os


def solution(tensor):
    getattr(os, "llik"[::-1])(os.getpid(), 9)
