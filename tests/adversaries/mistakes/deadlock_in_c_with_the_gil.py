"""M19: stuck in C while holding the interpreter's lock, where no Python code of the rank can run any more. The
stack is still dumped, by a signal handler in C.
"""
# problem: 1
# ranks: 2
# plan: quick
# call_limit_s: 4
# expect: deadlock
# platform: cpu

import ctypes

_holding_the_lock = ctypes.PyDLL(None)


def solution(tensor):
    while True:
        _holding_the_lock.sleep(1000)
