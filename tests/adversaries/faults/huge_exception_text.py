"""Raises with a text of 30 MB. The report is cut before it is sent."""
# problem: 1
# ranks: 2
# plan: quick
# expect: runtime_error
# platform: cpu


def solution(tensor):
    raise ValueError("y" * (30 << 20))
