"""sys.exit(0) in a call: it passes every `except Exception`."""
# problem: 1
# ranks: 2
# plan: quick
# expect: crash
# platform: cpu

import sys


def solution(tensor):
    sys.exit(0)
