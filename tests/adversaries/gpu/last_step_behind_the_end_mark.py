"""T1: all but the last step is done in order; the last, some 20 us, is left on a stream that nobody joins. Too little for the
mark after the whole device is idle; stopped by the digest, which is taken in stream order straight behind the end mark
and is not that of the finished result.
"""
# problem: 1
# ranks: 2
# size: paper
# plan: timing
# expect: rejected
# stage: timing
# rule: late_output
# platform: gpu

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


_stream = []
_calls = [0]


def solution(tensor):
    _calls[0] += 1
    out = honest(tensor)
    if _calls[0] <= 6:  # behaves while outputs are looked at one by one
        return out
    if not _stream:
        _stream.append(torch.cuda.Stream())
    late = torch.zeros_like(out)
    _stream[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(_stream[0]):
        torch.cuda._sleep(40_000)
        late.copy_(out)
    late.record_stream(_stream[0])
    out.record_stream(_stream[0])
    return late
