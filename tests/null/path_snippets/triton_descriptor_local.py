"""Trap: tensor descriptors over the rank's own operands; peers are read by plain loads elsewhere."""
# expect: sm_load_store
# kernels: gemm=- pull=sm_load_store

import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def gemm(a_desc, b, c, N, B: tl.constexpr):
    b_desc = tl.make_tensor_descriptor(b, shape=[N, N], strides=[N, 1], block_shape=[B, B])
    acc = tl.dot(a_desc.load([0, 0]), b_desc.load([0, 0]))
    at = tl.arange(0, B)
    tl.store(c + at[:, None] * N + at[None, :], acc)


@triton.jit
def pull(src, dst, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(dst + at, tl.load(src + at))  # <- sm_load_store


def solution(a, b, group):
    handle = symm_mem.rendezvous(a, group)
    peers = [handle.get_buffer(r, a.shape, a.dtype) for r in range(handle.world_size)]
    c = a.clone()
    gemm[(1,)](TensorDescriptor.from_tensor(a, [64, 64]), b, c, 64, B=64)
    for p in peers:
        pull[(1,)](p, c, B=64)
    return c
