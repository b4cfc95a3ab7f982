"""NCCL's device API for candidates: symmetric windows that kernels of all ranks load from and store to (LSA), and barriers.

    window = nccl_device.window(nbytes, device)
    kernel[blocks, threads](window.comm, window.handle, ...)

calls `extern "C" __global__ void kernel(const __grid_constant__ ncclDevComm comm, ncclWindow_t window, ...)` of a source with
`#include <nccl_device.h>`, which `kit.compile` builds with the headers of the NCCL that is loaded. See docs/backends.md.
"""

from pkb.kit.nccl_device.headers import NcclFound, found
from pkb.kit.nccl_device.library import NcclError
from pkb.kit.nccl_device.window import NcclWindow, teardown, window

__all__ = ["NcclError", "NcclFound", "NcclWindow", "found", "teardown", "window"]
