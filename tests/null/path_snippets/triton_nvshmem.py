"""NVSHMEM's device functions from Triton."""
# expect: library

import triton
import triton.language as tl
from torch.distributed._symmetric_memory import _nvshmem_triton as nvshmem


@triton.jit
def put(dst, src, n: tl.constexpr, pe: tl.constexpr):
    nvshmem.put(dst, src, n, pe)  # <- library
    nvshmem.quiet()  # <- library
