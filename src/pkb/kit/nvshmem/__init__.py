"""NVSHMEM for candidates: kernels that put, get and signal through a symmetric heap.

    from pkb import kit
    from pkb.kit import nvshmem
    KERNEL = kit.compile(SOURCE, name="gather").kernel("gather")  # a source that includes <nvshmem.h> is linked to it
    heap = nvshmem.symmetric(nbytes, name="gather")               # the same address for kernels of every PE

PEs are the ranks of the default process group. `start()` gives this PE and their number; `symmetric` and the first
launch call it.
"""

from pkb.kit.nvshmem.found import Found, found
from pkb.kit.nvshmem.host import NvshmemError, start
from pkb.kit.nvshmem.memory import symmetric

__all__ = ["Found", "NvshmemError", "found", "start", "symmetric"]
