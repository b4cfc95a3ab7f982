"""S18: returns a copy of its input. Stopped by inputs that differ between ranks.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong
# platform: cpu

def solution(tensor):
    return tensor.clone()
