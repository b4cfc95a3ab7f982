"""Asks for a GPU on a platform that has none: not the candidate's failure.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: unsupported
# platform: cpu

def solution(tensor):
    return tensor.cuda()
