"""A descriptor made on the host over a peer's tensor."""
# expect: tma

import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def tile_copy(desc, out, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(out + at[:, None] * B + at[None, :], desc.load([0, 0]))


def solution(x, group):
    handle = symm_mem.rendezvous(x, group)
    peer = handle.get_buffer((handle.rank + 1) % handle.world_size, x.shape, x.dtype)
    out = x.clone()
    tile_copy[(1,)](TensorDescriptor.from_tensor(peer, [64, 64]), out, B=64)  # <- tma
    return out
