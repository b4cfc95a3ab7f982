"""B2: the assembler copies a file of the machine into the library, where the ranks could read it. The build cannot read it.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: compile_error
# stage: build
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
asm(".section .rodata\n.global stolen\nstolen:\n.incbin \"/etc/passwd\"\n.byte 0\n.text");
extern "C" const char stolen[];
extern "C" const char* text() { return stolen; }
"""
LIBRARY = kit.build_cpp(SOURCE, name="stolen")

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
