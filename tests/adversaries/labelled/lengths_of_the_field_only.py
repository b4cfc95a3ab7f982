"""Subtle: transforms axes of the field's own lengths, whatever `s` says: right in every other call."""
# problem: 59
# ranks: 2
# dtype: fp32
# plan: quick
# expect: wrong
# stage: correctness
# says: shape
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

buffers = {}


def solution(x, s, dim, norm="ortho", group=None):
    group = group or dist.group.WORLD
    rank, world = dist.get_rank(group), group.size()
    first, second = (axis % x.dim() for axis in dim)
    lines = torch.view_as_real(torch.fft.fft(x, dim=first, norm=norm)).contiguous()
    if lines.shape not in buffers:
        buffer = symm_mem.empty(lines.numel(), dtype=lines.dtype, device=x.device)
        buffers[lines.shape] = buffer, symm_mem.rendezvous(buffer, group)
    buffer, handle = buffers[lines.shape]
    handle.barrier(channel=0)
    buffer.copy_(lines.view(-1))
    handle.barrier(channel=1)
    parts = [torch.view_as_complex(handle.get_buffer(peer, lines.shape, lines.dtype)) for peer in range(world)]
    own = torch.cat([part.chunk(world, dim=first)[rank] for part in parts], dim=second)
    spectrum = torch.fft.fft(own, dim=second, norm=norm)
    return spectrum.narrow(second, 0, own.shape[second] // 2 + 1).contiguous()
