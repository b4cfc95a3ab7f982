"""M19: never finishes loading."""
# problem: 1
# ranks: 2
# plan: quick
# call_limit_s: 2
# expect: deadlock
# stage: start
# platform: cpu
# slow: yes

import time

time.sleep(3600)


def solution(tensor):
    return tensor
