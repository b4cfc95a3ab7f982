"""A team's collective of NVSHMEM, called from Triton."""
# expect: library

import triton
import triton.language as tl
from torch.distributed._symmetric_memory import _nvshmem_triton as nvshmem


@triton.jit
def total(dst, src, n: tl.constexpr):
    nvshmem.reduce(0, dst, src, n, "sum")  # <- library
