"""T13/S6: looks into its caller's frame for arguments and answers. Stopped before it runs by the static rule
harness_access; the runtime files beside this one show what happens when the text hides it.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: rejected
# stage: inspect
# rule: harness_access
# platform: cpu

import sys


def solution(tensor):
    return sys._getframe(1).f_locals.get("expected", tensor)
