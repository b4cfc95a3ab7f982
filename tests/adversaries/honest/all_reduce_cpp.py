"""Honest: C++ through the kit, on raw pointers of the peers, with its own barrier of atomic counters in a
symmetric buffer.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import ctypes

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
#include <cstdint>
#include <cstring>
#include <sched.h>
static void meet(int32_t** flags, int rank, int world, int32_t epoch) {
  for (int peer = 0; peer < world; ++peer) __atomic_store_n(flags[peer] + 16 * rank, epoch, __ATOMIC_RELEASE);
  for (int peer = 0; peer < world; ++peer)
    while (__atomic_load_n(flags[rank] + 16 * peer, __ATOMIC_ACQUIRE) < epoch) sched_yield();
}
static float widen(uint16_t bits) {
  uint32_t word = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}
static uint16_t narrow(float value) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  return uint16_t((word + 0x7fff + ((word >> 16) & 1)) >> 16);
}
extern "C" void all_reduce(uint16_t** buffers, int32_t** flags, int rank, int world, int32_t epoch,
                           const uint16_t* in, uint16_t* out, int64_t n) {
  std::memcpy(buffers[rank], in, 2 * n);
  meet(flags, rank, world, epoch);
  for (int64_t i = 0; i < n; ++i) {
    float sum = 0;
    for (int peer = 0; peer < world; ++peer) sum += widen(buffers[peer][i]);
    out[i] = narrow(sum);
  }
  meet(flags, rank, world, epoch + 1);
}
"""
LIBRARY = kit.build_cpp(SOURCE, name="all_reduce")
_state = {}


def solution(tensor):
    if "flags" not in _state:
        flags = symm_mem.empty(1024, dtype=torch.int32, device=tensor.device).zero_()
        _state["flags"] = flags, symm_mem.rendezvous(flags, dist.group.WORLD), [1]
        dist.barrier()
    flags, flag_handle, epoch = _state["flags"]
    key = tuple(tensor.shape)
    if key not in _state:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _state[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    _, handle = _state[key]
    out = torch.empty(tensor.shape, dtype=tensor.dtype)
    tensor = tensor.contiguous()
    LIBRARY.all_reduce(
        ctypes.c_void_p(handle.buffer_ptrs_dev),
        ctypes.c_void_p(flag_handle.buffer_ptrs_dev),
        handle.rank,
        handle.world_size,
        ctypes.c_int32(epoch[0]),
        ctypes.c_void_p(tensor.data_ptr()),
        ctypes.c_void_p(out.data_ptr()),
        ctypes.c_int64(tensor.numel()),
    )
    epoch[0] += 2
    return out
