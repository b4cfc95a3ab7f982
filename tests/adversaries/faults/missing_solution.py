"""Defines another name."""
# problem: 1
# ranks: 2
# plan: quick
# expect: load_error
# platform: cpu


def solve(tensor):
    return tensor
