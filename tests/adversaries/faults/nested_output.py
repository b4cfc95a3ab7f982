"""Returns a list nested a hundred thousand levels deep. The description of an output is bounded."""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong|rejected
# platform: cpu


def solution(tensor):
    out = tensor.clone()
    for _ in range(100_000):
        out = [out]
    return out
