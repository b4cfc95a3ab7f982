"""Global gradient clipping: fused multi-tensor norms, one scalar exchanged by peer stores, one fused scaling pass.

Each rank writes its partial sum into every peer's slot and adds the W slots in rank order: 4 W bytes, one phase. Whether to
clip is decided on the device (a factor of 1 leaves bits unchanged), so the host never waits.
"""

import torch

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;

extern "C" __global__ void sum_scalars(char* const* buffers, u32* const* pads, int rank, int world, const float* in,
                                       float* out) {
  if (threadIdx.x < world) reinterpret_cast<float*>(buffers[threadIdx.x])[rank] = *in;  // push to everybody
  barrier_block(pads, rank, world, blockIdx.x);  // all have arrived
  if (threadIdx.x == 0) {
    float sum = 0.f;
    for (int peer = 0; peer < world; ++peer) sum += ((volatile float*)buffers[rank])[peer];
    *out = sum;
  }
  barrier_block(pads, rank, world, blockIdx.x);  // all have read
}

"""
KERNEL = kit.compile(SOURCE, name="sum_scalars").kernel("sum_scalars")


def solution(grad_tensors, max_norm, norm_type=2.0, fsdp_group=None):
    p = float(norm_type)
    if p <= 0 or p == float("inf"):
        raise ValueError(f"norm_type {norm_type} is not supported")
    grads = [g for g in grad_tensors if g is not None]
    filled = [g for g in grads if g.numel()]
    norms = torch._foreach_norm(filled, p, dtype=torch.float32) if filled else []
    device = grads[0].device if grads else torch.device("cuda", torch.cuda.current_device())
    partial = torch.stack(norms).pow(p).sum() if norms else torch.zeros((), device=device)
    total = partial
    if fsdp_group is not None:
        stage = kit.staging(4 * fsdp_group.size(), device, group=fsdp_group)
        total = torch.empty((), dtype=torch.float32, device=device)
        KERNEL[1, 32](kit.buffers(stage.handle), *kit.barrier_pads(stage.handle), partial, total)
    norm = total.pow(1.0 / p)
    factor = torch.where(norm > max_norm, max_norm / norm, torch.ones_like(norm))
    for dtype in {g.dtype for g in filled}:
        same = [g for g in filled if g.dtype == dtype]
        torch._foreach_mul_(same, factor.to(dtype))
    return norm
