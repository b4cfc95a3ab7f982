"""M19: sends a signal to its parent in plain sight. Stopped by the static rule process_tampering.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: rejected
# stage: inspect
# rule: process_tampering
# platform: cpu

import os
import signal


def solution(tensor):
    os.kill(os.getppid(), signal.SIGSTOP)
    return tensor
