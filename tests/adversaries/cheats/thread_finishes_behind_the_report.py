"""T2: a thread fills the result once its batch has been reported, in the milliseconds before it is fetched. Without times nobody
hashed the results of a batch: it was `correct`. Stopped by a digest of every result, taken when the calls have returned; the
verdict is the one of a peer that writes too late, since the two look the same.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: race
# stage: correctness
# rule: late_output
# platform: cpu
# also: gpu

import sys
import threading
import time

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


def _is_idle(main):
    """Whether the rank waits for its next order."""
    frame, back = getattr(sys, "".join(["_current", "_frames"]))()[main], "".join(["f_", "back"])
    while frame is not None:
        if frame.f_code.co_name == "receive":
            return True
        frame = getattr(frame, back)
    return False


def solution(tensor):
    total, out, main = honest(tensor), torch.zeros_like(tensor), threading.get_ident()

    def finish():
        while not _is_idle(main):
            time.sleep(0)
        out.copy_(total)

    threading.Thread(target=finish).start()
    return out
