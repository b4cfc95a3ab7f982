"""M19: waits for a signal that nobody sends."""
# problem: 1
# ranks: 2
# plan: quick
# call_limit_s: 4
# expect: deadlock
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


def solution(tensor):
    buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
    handle.wait_signal(src_rank=(handle.rank + 1) % handle.world_size, channel=3)
    return tensor
