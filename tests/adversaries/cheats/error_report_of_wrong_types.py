"""M20: reports an error whose time is a text on one rank and a number on the other, so that the judge cannot
sort them. Stopped by checking the form of error reports too.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: runtime_error|rejected
# platform: cpu

import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


def _patched(original):
    def send(self, message, fds=(), **rest):
        if type(message).__name__ == "ErrorReport":
            vars(message)["at_ns"] = "soon" if dist.get_rank() else 5
            vars(message)["message"] = {"not": "a text"}
        return original(self, message, fds, **rest)

    return send


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("types.channel"):
        _module.Channel.send = _patched(_module.Channel.send)


def solution(tensor):
    raise ValueError("wrong on purpose")
