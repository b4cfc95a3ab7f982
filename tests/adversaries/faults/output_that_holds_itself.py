"""Returns a list that holds itself."""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong|rejected
# platform: cpu


def solution(tensor):
    out = [tensor.clone()]
    out.append(out)
    return out
