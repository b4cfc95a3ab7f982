"""Returns a list that holds itself.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong|rejected
# platform: cpu
# xfail: RecursionError in trees.describe counts as the candidate's runtime_error

def solution(tensor):
    out = [tensor.clone()]
    out.append(out)
    return out
