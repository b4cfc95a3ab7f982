"""R8: connects to sockets of other programs, which have names in the file system and which Landlock does not guard: the user's
tmux, an SSH agent or a container engine would do its bidding outside of all walls. Does honest work and raises on a breach.
Stopped by covering all that are there when the ranks start: with their folder, or one by one where ranks need that.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu
# also: gpu
# sockets: /tmp/pkb-test-sockets/default /tmp/pkb-test-socket

import socket

import torch.distributed as dist

SOCKETS = ("/tmp/pkb-test-sockets/default", "/tmp/pkb-test-socket")


def _reached(path):
    with socket.socket(socket.AF_UNIX) as talk:
        try:
            talk.settimeout(2)
            talk.connect(path)
        except OSError:
            return False
    return True


def solution(tensor):
    if reached := [path for path in SOCKETS if _reached(path)]:
        raise RuntimeError(f"reached {reached}")
    out = tensor.clone()
    dist.all_reduce(out)
    return out
