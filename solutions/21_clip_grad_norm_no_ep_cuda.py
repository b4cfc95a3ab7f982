"""Global gradient clipping: fused multi-tensor norms, one scalar exchanged by peer stores, one fused scaling pass.

Each rank writes its partial sum into every peer's slot and adds the W numbers in rank order. Links: 4 (W-1) bytes in
each direction of a GPU, in one dependent step, a turn of pkb::pipeline.
Whether to clip is decided on the device (a factor of 1 leaves bits unchanged), so the host never waits.
"""

import torch

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;

extern "C" __global__ void sum_scalars(const __grid_constant__ Pipe pipe, const float* in, float* out) {
  const u32 epoch = pipe.epoch();
  const u64 slot = pipe.at(epoch, 0);  // a number of every rank
  auto push = [&](u32) {
    for (u32 peer = threadIdx.x; peer < pipe.world; peer += blockDim.x)
      reinterpret_cast<float*>(pipe.slots[peer] + slot)[pipe.rank] = *in;
  };
  auto add = [&](u32) {
    float sum = 0.f;
    for (u32 peer = 0; peer < pipe.world; ++peer) sum += reinterpret_cast<const float*>(pipe.slots[pipe.rank] + slot)[peer];
    if (threadIdx.x == 0) *out = sum;
  };
  pipeline(pipe, epoch, push, add);
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
        slot_bytes = -(-fsdp_group.size() // 4) * 16
        pipe = kit.pipeline("clip", blocks=1, slot_bytes=slot_bytes, device=device, group=fsdp_group)
        total = torch.empty((), dtype=torch.float32, device=device)
        KERNEL[1, 32](pipe(1), partial, total)
    norm = total.pow(1.0 / p)
    factor = torch.where(norm > max_norm, max_norm / norm, torch.ones_like(norm))
    for dtype in {g.dtype for g in filled}:
        same = [g for g in filled if g.dtype == dtype]
        torch._foreach_mul_(same, factor.to(dtype))
    return norm
