"""A Triton kernel is handed a peer's tensor; the helper that launches it gets it as a parameter."""
# expect: sm_load_store
# kernels: copy_kernel=sm_load_store scale=-

import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl


@triton.jit
def copy_kernel(src, dst, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + at, tl.load(src + at, mask=at < n), mask=at < n)  # <- sm_load_store


@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def fetch(remote, out):
    copy_kernel[(8,)](remote, out, out.numel(), BLOCK=1024)


def solution(x, group):
    handle = symm_mem.rendezvous(x, group)
    neighbour = handle.get_buffer((handle.rank + 1) % handle.world_size, x.shape, x.dtype)
    out = x.new_empty(x.shape)
    fetch(neighbour, out)
    scale[(8,)](out, out.numel(), BLOCK=1024)
    return out
