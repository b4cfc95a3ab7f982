"""The CUDA driver through ctypes: the dozen calls that loading and launching a kernel take. Nothing is touched on
import.
"""

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import Any

from pkb.types.failure import Cause, NotOnThisPlatform

INVALID_CONTEXT = 201
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_DEFAULT_SHARED_BYTES = 48 * 1024
_OPTIN_SHARED = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuModuleLoadData": (POINTER(c_void_p), c_char_p),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxGetCurrent": (POINTER(c_void_p),),
    "cuCtxSetCurrent": (c_void_p,),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (POINTER(c_int), c_void_p, c_int, c_size_t),
    "cuLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, c_void_p, c_void_p),
    "cuLaunchCooperativeKernel": (c_void_p, *(c_uint,) * 7, c_void_p, c_void_p),
}


class DriverError(RuntimeError):
    """A driver call failed; the message holds the driver's own text."""

    def __init__(self, call: str, status: int, detail: str = "") -> None:
        self.status = status
        library = _library()
        name, text = c_char_p(), c_char_p()
        library.cuGetErrorName(status, ctypes.byref(name))
        library.cuGetErrorString(status, ctypes.byref(text))
        said = f"{(name.value or b'?').decode()}: {(text.value or b'?').decode()}"
        super().__init__(f"{call}: {said}{f' ({detail})' if detail else ''}")


@lru_cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        message = f"a CUDA kernel needs a GPU and its driver, and this machine has none ({error})"
        raise NotOnThisPlatform(Cause.LACKS_CUDA, message) from None
    for name, arguments in _SIGNATURES.items():
        getattr(library, name).argtypes = arguments
    return library


def check(status: int, call: str, detail: str = "") -> None:
    if status != 0:
        raise DriverError(call, status, detail)


@lru_cache
def library() -> ctypes.CDLL:
    """The driver, initialised; `RuntimeError` says plainly that there is no GPU."""
    driver = _library()
    status = driver.cuInit(0)
    if status != 0:
        message = f"a CUDA kernel needs a GPU, and this process sees none ({DriverError('cuInit', status)})"
        raise NotOnThisPlatform(Cause.LACKS_CUDA, message)
    return driver


def enter_context(device: int) -> None:
    """Make torch's context (the primary one) current on this thread, if none is."""
    driver = library()
    context = c_void_p()
    check(driver.cuCtxGetCurrent(ctypes.byref(context)), "cuCtxGetCurrent")
    if not context.value:
        check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
        check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")


def load_module(cubin: Path, *, device: int) -> c_void_p:
    enter_context(device)
    module = c_void_p()
    status = library().cuModuleLoadData(ctypes.byref(module), cubin.read_bytes())
    check(status, "cuModuleLoadData", f"{cubin.name}; built for another architecture than this GPU's?")
    return module


def get_function(module: c_void_p, name: str) -> c_void_p | None:
    """The kernel's handle, or None if the module has no such symbol."""
    function = c_void_p()
    status = library().cuModuleGetFunction(ctypes.byref(function), module, name.encode())
    if status == 500:  # CUDA_ERROR_NOT_FOUND
        return None
    check(status, "cuModuleGetFunction", name)
    return function


def parameter_sizes(function: c_void_p) -> tuple[int, ...] | None:
    """The byte size of each parameter, or None from a driver older than CUDA 12.4, which cannot say."""
    driver = library()
    if not hasattr(driver, "cuFuncGetParamInfo"):
        return None
    sizes: list[int] = []
    offset, size = c_size_t(), c_size_t()
    while driver.cuFuncGetParamInfo(function, c_size_t(len(sizes)), ctypes.byref(offset), ctypes.byref(size)) == 0:
        sizes.append(size.value)
    return tuple(sizes)


def allow_shared(function: c_void_p, wanted: int, *, device: int) -> None:
    """More than 48 KB of dynamic shared memory must be asked for, once per kernel."""
    if wanted <= _DEFAULT_SHARED_BYTES:
        return
    limit = c_int()
    check(library().cuDeviceGetAttribute(ctypes.byref(limit), _OPTIN_SHARED, device), "cuDeviceGetAttribute")
    status = library().cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, wanted)
    check(status, "cuFuncSetAttribute", f"{wanted} bytes of shared memory wanted, a block gets {limit.value} at most")


def blocks_per_sm(function: c_void_p, *, threads: int, shared: int) -> int:
    count = c_int()
    status = library().cuOccupancyMaxActiveBlocksPerMultiprocessor(ctypes.byref(count), function, threads, shared)
    check(status, "cuOccupancyMaxActiveBlocksPerMultiprocessor")
    return count.value
