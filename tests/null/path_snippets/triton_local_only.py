"""Trap: Triton computes, NCCL communicates."""
# expect: library
# kernels: gelu=-

import torch.distributed as dist
import triton
import triton.language as tl


@triton.jit
def gelu(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(y + at, v * tl.sigmoid(1.702 * v), mask=at < n)


def solution(x):
    y = x.clone()
    gelu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    out = [y.new_empty(y.shape) for _ in range(dist.get_world_size())]
    dist.all_gather(out, y)  # <- library
    return out
