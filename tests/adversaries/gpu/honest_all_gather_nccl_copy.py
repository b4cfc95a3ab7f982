"""Honest: an all-gather by NCCL's own copy to all peers (ncclLsaCopy), in blocks that each have a barrier."""
# problem: 2
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: gpu

import torch
import torch.distributed as dist
from pkb import kit
from pkb.kit import nccl_device

SOURCE = r"""
#include <nccl_device.h>

extern "C" __global__ void all_gather(const __grid_constant__ ncclDevComm comm, ncclWindow_t window, unsigned short* in,
                                      unsigned short* out, unsigned long long elements) {
  ncclLsaBarrierSession<ncclCoopCta> meeting{ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x};
  const unsigned long long share = (elements + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * share;
  const unsigned long long left = begin < elements ? elements - begin : 0, count = left < share ? left : share;
  ncclLsaCopy(ncclCoopCta(), in + begin, window, 2 * (comm.rank * elements + begin), count, comm);
  meeting.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
  const unsigned short* all = (const unsigned short*)ncclGetLocalPointer(window, 0);
  for (int rank = 0; rank < comm.nRanks; ++rank)
    for (unsigned long long i = begin + threadIdx.x; i < begin + count; i += blockDim.x)
      out[rank * elements + i] = all[rank * elements + i];
  meeting.sync(ncclCoopCta(), cuda::memory_order_acq_rel);  // all have read: the next call may write
}
"""
KERNEL = kit.compile(SOURCE, name="copying").kernel("all_gather")


def solution(tensor):
    tensor = tensor.contiguous()
    elements = tensor.numel()
    window = nccl_device.window(2 * dist.get_world_size() * elements, tensor.device)
    out = torch.empty((window.world, *tensor.shape), dtype=tensor.dtype, device=tensor.device)
    KERNEL[8, 128](window.comm, window.handle, tensor, out, elements)
    return out
