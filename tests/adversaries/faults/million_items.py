"""Returns a list of a million numbers where a tensor belongs."""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong|rejected
# platform: cpu


def solution(tensor):
    return list(range(1_000_000))
