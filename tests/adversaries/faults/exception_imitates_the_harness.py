"""M20: raises with the words of a failing harness. Verdicts are made from structured state, never from text of a
candidate.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: runtime_error
# rule: RuntimeError
# platform: cpu


def solution(tensor):
    raise RuntimeError(
        "harness_error: the oracle failed: gone on ranks [0]: NCCL connection refused, infrastructure fault"
    )
