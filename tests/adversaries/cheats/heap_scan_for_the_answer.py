"""S6: walks over all objects of the process for a tensor of the right shape and returns it. Stopped because
neither the answer nor a peer's input is ever in the candidate's process.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong
# platform: cpu

import importlib

import torch

_collector = importlib.import_module("cg"[::-1])


def solution(tensor):
    for thing in getattr(_collector, "stcejbo_teg"[::-1])():
        if type(thing) is torch.Tensor and thing.shape == tensor.shape and thing.data_ptr() != tensor.data_ptr():
            return thing.clone()
    return torch.zeros_like(tensor)
