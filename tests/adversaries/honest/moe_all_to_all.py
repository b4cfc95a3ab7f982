"""Honest: offsets travel first, then rows are pulled from where they lie."""
# problem: 27
# ranks: 3
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}
ROWS = 4096


def solution(local_tensor, input_split_sizes=None, output_split_sizes=None, group=None):
    width, kind = local_tensor.shape[1], local_tensor.dtype
    if width not in _buffers:
        buffer = symm_mem.empty(ROWS, width, dtype=kind, device=local_tensor.device)
        offsets = symm_mem.empty(64, dtype=torch.int64, device=local_tensor.device)
        _buffers[width] = (
            buffer,
            symm_mem.rendezvous(buffer, dist.group.WORLD),
            offsets,
            symm_mem.rendezvous(offsets, dist.group.WORLD),
        )
    buffer, handle, offsets, offset_handle = _buffers[width]
    buffer[: local_tensor.shape[0]].copy_(local_tensor)
    starts = torch.tensor([0, *input_split_sizes]).cumsum(0)
    offsets[: len(starts)].copy_(starts)
    handle.barrier(channel=0)
    parts = []
    for peer in range(handle.world_size):
        first, last = offset_handle.get_buffer(peer, (64,), torch.int64)[handle.rank : handle.rank + 2].tolist()
        parts.append(handle.get_buffer(peer, (ROWS, width), kind)[first:last])
    out = torch.cat(parts)
    handle.barrier(channel=1)
    return out
