"""Does not parse.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: compile_error
# stage: inspect
# platform: cpu

def solution(tensor:
    return tensor
