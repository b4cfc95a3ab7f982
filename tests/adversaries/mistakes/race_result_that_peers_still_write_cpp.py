"""M2: an all-gather that pushes into its peers' results and waits for nobody: a rank returns before its peers have written. By the
time that results are fetched all of it has arrived, and C++ for the host leaves no record: it was `correct`. Stopped by a digest of
every result, taken when the call returns, where one rank is told of the call after the others.
"""
# problem: 2
# ranks: 2
# plan: quick
# expect: race
# rule: missing_end_barrier
# platform: cpu

import ctypes

import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
#include <cstdint>
#include <cstring>
extern "C" void push(char** results, int64_t offset, int rank, int world, const char* in, int64_t bytes) {
  for (int peer = 0; peer < world; ++peer) std::memcpy(results[peer] + offset + rank * bytes, in, bytes);
}
"""
LIBRARY = kit.build_cpp(SOURCE, name="push")
CALLS = 64
_pools = {}


def solution(tensor):
    world = dist.get_world_size()
    key = tuple(tensor.shape)
    if key not in _pools:  # results of many calls, none of which is ever used again
        pool = symm_mem.empty(CALLS, world, *tensor.shape, dtype=tensor.dtype, device=tensor.device)
        _pools[key] = pool, symm_mem.rendezvous(pool, dist.group.WORLD), iter(range(CALLS))
    pool, handle, numbers = _pools[key]
    result = pool[next(numbers)]
    addresses = (ctypes.c_void_p * world)(*handle.buffer_ptrs)
    tensor = tensor.contiguous()
    LIBRARY.push(
        addresses, ctypes.c_int64(result.data_ptr() - pool.data_ptr()), handle.rank, world,
        ctypes.c_void_p(tensor.data_ptr()), ctypes.c_int64(tensor.numel() * tensor.element_size()),
    )  # fmt: skip
    return result
