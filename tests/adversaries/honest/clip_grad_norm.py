"""Honest: one number per rank travels; the gradients are scaled in place, as the problem asks."""
# problem: 21
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_state = []


def solution(grad_tensors, max_norm, norm_type=2.0, fsdp_group=None):
    if not _state:
        buffer = symm_mem.empty(1, dtype=torch.float64, device=grad_tensors[0].device)
        _state.extend((buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)))
    buffer, handle = _state
    power = sum(float(g.double().abs().pow(norm_type).sum()) for g in grad_tensors)
    buffer.fill_(power)
    handle.barrier(channel=0)
    total = sum(float(handle.get_buffer(peer, (1,), torch.float64)[0]) for peer in range(handle.world_size))
    handle.barrier(channel=1)
    norm = torch.tensor(total ** (1 / norm_type), dtype=torch.float32, device=buffer.device)
    if norm > max_norm:
        for gradient in grad_tensors:
            gradient.mul_(max_norm / float(norm))
    return norm
