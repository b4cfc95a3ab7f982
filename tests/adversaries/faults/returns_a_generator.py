"""Returns a generator, which has not computed anything yet."""
# problem: 1
# ranks: 2
# plan: quick
# expect: rejected|wrong
# platform: cpu


def solution(tensor):
    return (tensor * 2 for _ in range(1))
