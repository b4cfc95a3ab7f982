"""NVSHMEM for candidates: kernels that put, get and signal through a symmetric heap.

    from pkb import kit
    from pkb.kit import nvshmem
    KERNEL = kit.compile(SOURCE, name="gather").kernel("gather")  # a source that includes <nvshmem.h> is linked to it
    heap = nvshmem.symmetric(elements, dtype, name="gather")      # its address means the same to kernels of every PE

PEs are the ranks of the default process group. `start()` gives this PE and their number; `symmetric` and the first
launch call it. The constants are those of NVSHMEM's headers, for Triton kernels: what torch's own helpers
(`torch.distributed._symmetric_memory._nvshmem_triton`) say of them in their texts are others' numbers.
"""

from pkb.kit.nvshmem.found import NvshmemFound, found
from pkb.kit.nvshmem.host import NvshmemError, start
from pkb.kit.nvshmem.memory import symmetric

CMP_EQ, CMP_NE, CMP_GT, CMP_LE, CMP_LT, CMP_GE = range(6)
SIGNAL_SET, SIGNAL_ADD = 9, 10

__all__ = [
    "CMP_EQ",
    "CMP_GE",
    "CMP_GT",
    "CMP_LE",
    "CMP_LT",
    "CMP_NE",
    "SIGNAL_ADD",
    "SIGNAL_SET",
    "NvshmemError",
    "NvshmemFound",
    "found",
    "start",
    "symmetric",
]  # fmt: skip
