"""NVSHMEM's host library through ctypes: one start per process, by a unique id that ranks hand on through torch's store.

`libnvshmem_host` keeps its state once per process, whoever has loaded it: torch's own NVSHMEM backend and its Triton
helpers find it started.
"""

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char, c_int, c_size_t, c_uint, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import Any

from pkb.kit.nvshmem import heap
from pkb.kit.nvshmem.found import found

_UNIQUE_ID_FLAG = 8
_FULL_SUPPORT = (2, 4)
"""Of nvshmemx_init_status: one PE on each GPU, or several under MPS with all functions."""
_LIMITED = 3
_KEY = "pkb.kit.nvshmem unique id"
_SETTINGS = {
    "NVSHMEM_BOOTSTRAP": "UID",
    "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "lo",
    "NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY": "AF_INET",
    "NVSHMEM_REMOTE_TRANSPORT": "none",
    # Memory made by the driver's virtual memory calls is handed on through sockets in /tmp, where a rank may not write.
    "NVSHMEM_DISABLE_CUDA_VMM": "1",
    "NVSHMEM_DISABLE_NVLS": "1",  # it needs such memory
    "NVSHMEM_CUMEM_GRANULARITY": str(2 << 20),  # heaps are rounded up to it; by default to half a gibibyte
    "NVSHMEM_DISABLE_NCCL": "1",
}


class _UniqueId(ctypes.Structure):
    _fields_ = (("version", c_int), ("internal", c_char * 124))


class _UniqueIdArguments(ctypes.Structure):
    _fields_ = (("version", c_int), ("id", POINTER(_UniqueId)), ("rank", c_int), ("world", c_int))


class _Arguments(ctypes.Structure):
    _fields_ = (("version", c_int), ("unique", _UniqueIdArguments), ("content", c_char * 96))


class _Attributes(ctypes.Structure):
    _fields_ = (("version", c_int), ("mpi", c_void_p), ("arguments", _Arguments))


def _versioned(kind: type[ctypes.Structure]) -> int:
    return (1 << 16) + ctypes.sizeof(kind)


class NvshmemError(RuntimeError):
    """NVSHMEM refused something; the message names the rank."""


_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "nvshmemx_get_uniqueid": (c_int, (POINTER(_UniqueId),)),
    "nvshmemx_hostlib_init_attr": (c_int, (c_uint, POINTER(_Attributes))),
    "nvshmemx_init_status": (c_int, ()),
    "nvshmemx_cumodule_init": (c_int, (c_void_p,)),
    "nvshmem_malloc": (c_void_p, (c_size_t,)),
    "nvshmem_barrier_all": (None, ()),
}


@lru_cache
def library() -> ctypes.CDLL:
    where = found()
    if isinstance(where, str):
        raise NvshmemError(where)
    loaded = ctypes.CDLL(str(where.host_library), mode=ctypes.RTLD_GLOBAL)
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


@lru_cache
def start() -> tuple[int, int]:
    """Starts NVSHMEM for all ranks of the default process group, once. Returns this PE and their number.

    Collective: the first call of each rank waits for the others.
    """
    import torch
    import torch.distributed as dist

    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.synchronize()  # makes the context, and leaves no kernel that others may wait for
    free, _ = torch.cuda.mem_get_info()
    size = heap.size_for(free=free, world=world, case_bytes=int(os.environ.get(heap.CASE_BYTES, "0")))
    if size < heap.LEAST:
        raise NvshmemError(f"rank {rank}: {free >> 20} MiB of device memory are left, too few for {world} heaps")
    for name, value in {**_SETTINGS, "NVSHMEM_SYMMETRIC_SIZE": str(size)}.items():
        os.environ.setdefault(name, value)
    nvshmem = library()
    identity = _UniqueId(version=_versioned(_UniqueId))
    store: Any = dist.distributed_c10d._get_default_store()
    if rank == 0:
        _check(nvshmem.nvshmemx_get_uniqueid(byref(identity)), "nvshmemx_get_uniqueid", rank)
        store.set(_KEY, bytes(identity).hex())
    else:
        identity = _UniqueId.from_buffer_copy(bytes.fromhex(store.get(_KEY).decode()))
    unique = _UniqueIdArguments(_versioned(_UniqueIdArguments), ctypes.pointer(identity), rank, world)
    attributes = _Attributes(_versioned(_Attributes), None, _Arguments(_versioned(_Arguments), unique))
    with _mps_known():
        status = nvshmem.nvshmemx_hostlib_init_attr(_UNIQUE_ID_FLAG, byref(attributes))
    _check(status, "nvshmemx_hostlib_init_attr", rank)
    state = int(nvshmem.nvshmemx_init_status())
    if state not in _FULL_SUPPORT:
        words = "ranks share a GPU, and it knows of no MPS" if state == _LIMITED else f"state {state}"
        raise NvshmemError(f"rank {rank}: NVSHMEM has not started with all functions: {words}")
    return rank, world


def heap_bytes() -> int:
    """Of each PE, for all its symmetric memory."""
    return int(os.environ.get("NVSHMEM_SYMMETRIC_SIZE", "0"))


def enter_module(module: c_void_p) -> None:
    """Tells the device functions in a loaded module where the heaps are. Collective where NVSHMEM has not started yet."""
    rank, _ = start()
    _check(library().nvshmemx_cumodule_init(module), "nvshmemx_cumodule_init", rank)


@contextmanager
def _mps_known() -> Iterator[None]:
    """NVSHMEM asks MPS's daemon whether ranks that share a GPU run side by side, and does without most functions where
    it hears nothing. A rank under MPS cannot reach the daemon, whose commands would end other ranks: the environment
    answers in its place.
    """
    share = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
    before = os.environ.get("PATH", "")
    if share is None:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "nvidia-cuda-mps-control"
        answer.write_text(f"#!/bin/sh\necho {share}\n")
        answer.chmod(0o700)
        os.environ["PATH"] = f"{folder}:{before}"
        try:
            yield
        finally:
            os.environ["PATH"] = before


def _check(status: int, call: str, rank: int) -> None:
    if status != 0:
        raise NvshmemError(f"rank {rank}: {call} answers {status}; NVSHMEM_DEBUG=INFO makes it say more")
