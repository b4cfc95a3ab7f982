"""NVSHMEM's device functions from Triton."""
# expect: sm_load_store

import triton
import triton.language as tl
from torch.distributed._symmetric_memory import _nvshmem_triton as nvshmem


@triton.jit
def put(dst, src, n: tl.constexpr, pe: tl.constexpr):
    nvshmem.put(dst, src, n, pe)  # <- sm_load_store
    nvshmem.quiet()  # <- sm_load_store
