"""T4: as tensor_instance_override, with a parameter, whose own attributes nobody looked at: asking for its number of elements does
the work, after the end mark. Stopped by refusing attributes that hide those of a tensor.
"""
# problem: 1
# ranks: 2
# size: paper
# plan: timing
# expect: rejected
# stage: correctness
# rule: bad_output
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def honest(tensor):
    """All-reduce on symmetric memory as an honest candidate does it."""
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    total = torch.zeros(tensor.numel(), dtype=torch.float32, device=tensor.device)
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, (tensor.numel(),), tensor.dtype).float()
    handle.barrier(channel=1)
    return total.to(tensor.dtype).reshape(tensor.shape)

def solution(tensor):
    out = torch.empty_like(tensor)
    done = []

    def numel():
        if not done:
            done.append(1)
            out.copy_(honest(tensor))
        return torch.Tensor.numel(out)

    result = torch.nn.Parameter(out, requires_grad=False)
    result.numel = numel
    return result
