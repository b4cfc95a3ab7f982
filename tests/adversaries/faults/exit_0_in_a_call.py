"""M10: leaves with status 0 in the middle of a call, as if all were well. A rank without a report is a failed
rank.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: crash
# platform: cpu

import os


def solution(tensor):
    os._exit(0)
