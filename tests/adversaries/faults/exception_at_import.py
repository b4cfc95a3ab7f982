"""Raises while it is loaded."""
# problem: 1
# ranks: 2
# plan: quick
# expect: load_error
# stage: start
# rule: ZeroDivisionError
# platform: cpu

_scale = 1 / 0


def solution(tensor):
    return tensor
