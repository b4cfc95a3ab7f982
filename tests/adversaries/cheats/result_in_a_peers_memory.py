"""S28: one rank adds, and every rank returns that rank's memory: right wherever it is read, and nothing was sent to anybody. Who uses
the result has it moved then, behind the clock, and who changes it changes it for all. Stopped by looking whose memory it is.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: rejected
# stage: correctness
# rule: aliased_output
# says: memory of another rank
# platform: cpu
# also: gpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_kept = []


def solution(tensor):
    count = tensor.numel()
    buffer = symm_mem.empty(2 * count, dtype=tensor.dtype, device=tensor.device)
    handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
    _kept.append((buffer, handle))
    buffer[:count].copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    if handle.rank == 0:
        total = torch.zeros(count, dtype=torch.float32, device=tensor.device)
        for peer in range(handle.world_size):
            total += handle.get_buffer(peer, (count,), tensor.dtype).float()
        buffer[count:].copy_(total)
    handle.barrier(channel=1)
    return handle.get_buffer(0, (count,), tensor.dtype, count).view(tensor.shape)
