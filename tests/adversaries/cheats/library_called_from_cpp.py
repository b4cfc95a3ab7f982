"""M6: symmetric memory for show, and C++ that calls NCCL's host function on a communicator of its own, where torch counts nothing
and copy engines leave no kernel of NCCL's. Said to be the library: by what the extension imports. Without NCCL, as here, the
symbol is weak and the sum comes from the memory.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: library
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
extern "C" __attribute__((weak)) int ncclAllReduce(const void*, void*, unsigned long, int, int, void*, void*);
extern "C" int reduce(void* data, unsigned long n, void* comm) {
  return ncclAllReduce ? ncclAllReduce(data, data, n, 7, 0, comm, nullptr) : 0;
}
"""
LIBRARY = kit.build_cpp(SOURCE, name="reduce")

_buffers = {}


def solution(tensor):
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
