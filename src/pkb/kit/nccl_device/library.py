"""NCCL's host functions that set the device API up, through ctypes: a communicator, memory, windows, device communicators."""

import ctypes
from typing import Any

from pkb.kit.nccl_device.headers import found

_MAGIC = 0xCAFEBEEF
_VERSION = 23203
"""Of the structures below. The library takes older ones as they are: each says its own size and version."""
_UNSET = -(1 << 31)
WIN_COLL_SYMMETRIC = 1


class UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)


_HEAD: tuple[tuple[str, Any], ...] = (("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint))


class Requirements(ctypes.Structure):
    """`ncclDevCommRequirements`, with the values of its initializer."""

    _fields_ = (
        *_HEAD,
        ("resources", ctypes.c_void_p),
        ("teams", ctypes.c_void_p),
        ("lsa_multimem", ctypes.c_bool),
        ("barrier_count", ctypes.c_int),
        ("lsa_barrier_count", ctypes.c_int),
        ("rail_gin_barrier_count", ctypes.c_int),
        ("lsa_ll_a2a_block_count", ctypes.c_int),
        ("lsa_ll_a2a_slot_count", ctypes.c_int),
        ("gin_force_enable", ctypes.c_bool),
        ("gin_context_count", ctypes.c_int),
        ("gin_signal_count", ctypes.c_int),
        ("gin_counter_count", ctypes.c_int),
        ("gin_connection_type", ctypes.c_int),
        ("gin_exclusive_contexts", ctypes.c_bool),
        ("gin_queue_depth", ctypes.c_int),
        ("gin_traffic_class", ctypes.c_int),
        ("world_gin_barrier_count", ctypes.c_int),
        ("gin_strong_signals_required", ctypes.c_bool),
        ("gin_va_signals_required", ctypes.c_bool),
        ("gin_custom_stride", ctypes.c_int),
        ("gin_type", ctypes.c_int),
        ("use_runtime_version", ctypes.c_bool),
        ("cft_caps", ctypes.c_int),
        ("cft_barrier_count", ctypes.c_int),
    )

    def __init__(self, **fields: Any) -> None:
        given = {"gin_context_count": 4, "gin_traffic_class": _UNSET, "gin_custom_stride": 1} | fields
        # Kernels are compiled with the headers of the library that is loaded.
        given |= {"size": ctypes.sizeof(self), "magic": _MAGIC, "version": _VERSION, "use_runtime_version": True}
        super().__init__(gin_strong_signals_required=True, gin_va_signals_required=True, **given)


class ResourceRequirements(ctypes.Structure):
    """`ncclDevResourceRequirements`: memory that a device communicator holds for one thing."""

    _fields_ = (
        ("next", ctypes.c_void_p),
        ("buffer_size", ctypes.c_size_t),
        ("buffer_align", ctypes.c_size_t),
        ("out_buffer_handle", ctypes.c_void_p),
        ("gin_signal_count", ctypes.c_int),
        ("gin_counter_count", ctypes.c_int),
        ("out_gin_signal_start", ctypes.c_void_p),
        ("out_gin_counter_start", ctypes.c_void_p),
    )


class Properties(ctypes.Structure):
    """`ncclCommProperties`."""

    _fields_ = (
        *_HEAD,
        ("rank", ctypes.c_int),
        ("ranks", ctypes.c_int),
        ("cuda_device", ctypes.c_int),
        ("nvml_device", ctypes.c_int),
        ("device_api", ctypes.c_bool),
        ("multimem", ctypes.c_bool),
        ("gin_type", ctypes.c_int),
        ("lsa_teams", ctypes.c_int),
        ("host_rma", ctypes.c_bool),
        ("railed_gin_type", ctypes.c_int),
        ("hash", ctypes.c_uint64),
        ("gin_min_stride", ctypes.c_int),
        ("gin_connection_type", ctypes.c_int),
        ("gin", ctypes.c_bool * 64),
        ("dev_comm_bytes", ctypes.c_size_t),
        ("cft", ctypes.c_bool),
        ("cft_multicast", ctypes.c_bool),
        ("cft_counted", ctypes.c_bool),
    )

    def __init__(self) -> None:
        super().__init__(size=ctypes.sizeof(self), magic=_MAGIC, version=_VERSION)


_PARAMETERS: dict[str, tuple[Any, ...]] = {
    "ncclGetUniqueId": (ctypes.c_void_p,),
    "ncclCommInitRank": (ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int),
    "ncclCommDestroy": (ctypes.c_void_p,),
    "ncclCommQueryProperties": (ctypes.c_void_p, ctypes.c_void_p),
    "ncclMemAlloc": (ctypes.c_void_p, ctypes.c_size_t),
    "ncclMemFree": (ctypes.c_void_p,),
    "ncclCommWindowRegister": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int),
    "ncclCommWindowDeregister": (ctypes.c_void_p, ctypes.c_void_p),
    "ncclDevCommCreate": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    "ncclDevCommDestroy": (ctypes.c_void_p, ctypes.c_void_p),
    "ncclLLA2ACreateRequirement": (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p),
}


class NcclError(RuntimeError):
    """A host function of NCCL failed, on the rank that the text names."""


class Nccl:
    """The library that is loaded; `call` raises `NcclError`."""

    def __init__(self, rank: int) -> None:
        there = found()
        if there.why_not or there.library is None:
            raise NcclError(f"rank {rank}: NCCL's device API: {there.why_not or 'no NCCL is loaded in this process'}")
        self._rank = rank
        self._library = ctypes.CDLL(str(there.library))
        self._library.ncclGetErrorString.restype = self._library.ncclGetLastError.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name)
        function.argtypes, function.restype = _PARAMETERS[name], ctypes.c_int
        status = function(*arguments)
        if status != 0:
            said = [self._library.ncclGetErrorString(status), self._library.ncclGetLastError(None)]
            words = ": ".join(text.decode(errors="replace").strip() for text in said if text)
            raise NcclError(f"rank {self._rank}: {name}: {words}")
