"""os.abort() in a call."""
# problem: 1
# ranks: 2
# plan: quick
# expect: crash
# platform: cpu

import os


def solution(tensor):
    os.abort()
