"""B3: a library that fills the cache of builds. An artifact has a limit, and the cache has one, too.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: compile_error
# stage: build
# rule: build limit
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
asm(".section .rodata\n.global ballast\nballast:\n.fill 26214400, 8, 1\n.text");
extern "C" int one() { return 1; }
"""
LIBRARY = kit.build_cpp(SOURCE, name="ballast")

_buffers = {}


def solution(tensor):
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
