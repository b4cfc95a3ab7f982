"""M7: computes nothing of its peers' and guesses that they hold the same as this rank. Stopped by inputs of
every rank's own.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong
# platform: cpu

import torch.distributed as dist


def solution(tensor):
    return tensor * dist.get_world_size()
