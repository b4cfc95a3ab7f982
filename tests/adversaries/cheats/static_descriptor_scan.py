"""T10: walks over the open descriptors to find the result channel. Stopped by the static rule result_forgery.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: rejected
# stage: inspect
# rule: result_forgery
# platform: cpu

import os


def solution(tensor):
    for fd in os.listdir("/proc/self/fd"):
        os.write(int(fd), b'I{"is": "Done"}')
    return tensor
