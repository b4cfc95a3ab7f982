"""Takes other arguments than the problem gives."""
# problem: 1
# ranks: 2
# plan: quick
# expect: runtime_error
# rule: TypeError
# platform: cpu


def solution(a, b, c):
    return a
