"""R13: takes the watches of epoll, of which a user has a few million for all programs: with the last of them gone, the judge itself
could wait for nothing. Here half a million, in two seconds; ten times as many took the machine's. Stopped by counting.
"""
# problem: 1
# ranks: 2
# plan: quick
# call_limit_s: 60
# expect: crash
# rule: process_limit
# says: epoll
# platform: cpu

import os
import resource
import select
import time

import torch.distributed as dist

_held = []


def _watch():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    end = os.pipe()[0]
    ends = [os.dup(end) for _ in range(800)]
    for _ in range(600):
        watcher = select.epoll()
        _held.append(watcher)
        for end in ends:
            watcher.register(end, 0)


def solution(tensor):
    if not _held:
        _watch()
        time.sleep(2)
    out = tensor.clone()
    dist.all_reduce(out)
    return out
