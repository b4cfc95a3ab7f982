"""Recursion without end."""
# problem: 1
# ranks: 2
# plan: quick
# expect: runtime_error
# rule: RecursionError
# platform: cpu


def solution(tensor):
    return solution(tensor)
