"""S10: rebuilds the peers' inputs from the process's random state. Stopped because inputs are drawn elsewhere
from a secret, and the generator's state has nothing to do with it.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong
# platform: cpu

import torch
import torch.distributed as dist


def solution(tensor):
    total = torch.zeros(tensor.shape, dtype=torch.float32)
    for rank in range(dist.get_world_size()):
        generator = torch.Generator().manual_seed((torch.initial_seed() + rank) % 2**63)
        total += torch.randn(tensor.shape, generator=generator).to(tensor.dtype).float()
    return total.to(tensor.dtype)
