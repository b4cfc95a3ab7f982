"""Subtle: scales to the largest norm always, also where the norm is below it. Such calls are a kind of their own, so that the
correctness stage has one however few its calls are.
"""
# problem: 21
# ranks: 2
# plan: quick
# expect: wrong
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

partial = []


def solution(grad_tensors, max_norm, norm_type=2.0, fsdp_group=None):
    if not partial:
        one = symm_mem.empty(1, dtype=torch.float64, device="cpu")
        partial.append((one, symm_mem.rendezvous(one, dist.group.WORLD)))
    one, handle = partial[0]
    one.fill_(sum(gradient.double().square().sum().item() for gradient in grad_tensors))
    handle.barrier(channel=0)
    norm = sum(handle.get_buffer(rank, (1,), torch.float64).item() for rank in range(handle.world_size)) ** 0.5
    handle.barrier(channel=1)
    torch._foreach_mul_(grad_tensors, max_norm / norm)
    return torch.tensor(norm, dtype=torch.float32)
