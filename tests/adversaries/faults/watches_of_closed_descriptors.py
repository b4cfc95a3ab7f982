"""R13: epoll goes on watching a file under the number of a duplicate that was closed, so that one watcher and thirty descriptors
hold as many watches as one likes. Stopped by counting the watches themselves.
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
    watcher = select.epoll()
    _held.append(watcher)
    for _ in range(30):
        end = os.pipe()[0]
        _held.append(end)
        for number in range(2000, min(most, 22_000) - 10):
            os.dup2(end, number)
            watcher.register(number, 0)
            os.close(number)


def solution(tensor):
    if not _held:
        _watch()
        time.sleep(2)
    out = tensor.clone()
    dist.all_reduce(out)
    return out
