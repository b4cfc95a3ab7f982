"""M19: hangs, and first replaces the handler of the signal by which its stack is asked for and the page on which
its status stands. The verdict rests on the silence alone.
"""
# problem: 1
# ranks: 2
# plan: quick
# call_limit_s: 4
# expect: deadlock
# platform: cpu

import signal
import sys
import time

signal.signal(getattr(signal, "1RSUGIS"[::-1]), signal.SIG_IGN)
for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.server"):
        _module.StatusPage._write = lambda self, text, **flags: self._page.__setitem__(slice(0, 8), b"finished")


def solution(tensor):
    time.sleep(3600)
