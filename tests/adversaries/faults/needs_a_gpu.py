"""Asks a GPU for its properties on a platform that has none: not the candidate's failure."""
# problem: 1
# ranks: 2
# plan: quick
# expect: unsupported
# platform: cpu

import torch


def solution(tensor):
    return tensor * torch.cuda.get_device_properties(0).multi_processor_count
