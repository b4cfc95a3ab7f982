"""sys.exit(0) at import."""
# problem: 1
# ranks: 2
# plan: quick
# expect: load_error
# stage: start
# platform: cpu

import sys

sys.exit(0)


def solution(tensor):
    return tensor
