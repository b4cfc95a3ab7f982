"""Trap: nothing but local work, with names that tempt."""
# expect: none

import torch

MESSAGE = "needs multimem.st; (or cp.async.bulk [x]) to run"


def send(x):
    return x.clone()


def barrier():
    return None


def solution(x):
    barrier()
    peer = x.view(-1)
    y = send(peer)
    y.copy_(peer)
    if x.numel() == 0:
        raise ValueError(MESSAGE)
    return y
