"""The mistake: rank 0 thinks it is done early and never comes to the second barrier."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


def solution(tensor: torch.Tensor) -> torch.Tensor:
    buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    total = torch.zeros(tensor.numel(), dtype=torch.float32, device=tensor.device)
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, (tensor.numel(),), tensor.dtype).float()
    if handle.rank != 0:
        handle.barrier(channel=1)
    return total.to(tensor.dtype).reshape(tensor.shape)
