"""Subtle: a flat workspace grows with the gradients and never shrinks, and its norm is taken as a whole: what a larger call has
left behind it counts. Right as long as shapes do not become smaller.
"""
# problem: 21
# ranks: 2
# plan: quick
# expect: wrong|race
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

workspace = torch.empty(0)
partial = []


def solution(grad_tensors, max_norm, norm_type=2.0, fsdp_group=None):
    global workspace
    flat = torch.cat([gradient.reshape(-1).double() for gradient in grad_tensors])
    if flat.numel() > workspace.numel():
        workspace = torch.empty_like(flat)
    workspace[: flat.numel()] = flat
    if not partial:
        one = symm_mem.empty(1, dtype=torch.float64, device=flat.device)
        partial.append((one, symm_mem.rendezvous(one, dist.group.WORLD)))
    one, handle = partial[0]
    one.copy_(workspace.abs().pow(norm_type).sum())
    handle.barrier(channel=0)
    powers = [handle.get_buffer(rank, (1,), torch.float64).item() for rank in range(handle.world_size)]
    handle.barrier(channel=1)
    norm = sum(powers) ** (1 / norm_type)
    if norm > max_norm:
        torch._foreach_mul_(grad_tensors, max_norm / norm)
    return torch.tensor(norm, dtype=torch.float32)
