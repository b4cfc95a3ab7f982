"""What calls into known libraries move: CUDA's runtime and driver, NCCL and its device side, NVSHMEM, MPI, c10d,
ParallelKittens, libcu++, and the kit's pkb.cuh."""

import re
from collections.abc import Sequence

from pkb.candidates.paths.cuda import Call
from pkb.candidates.paths.ptx import Meaning
from pkb.candidates.paths.use import Kind

POINTER_GETTERS: dict[str, Kind] = {
    "ncclGetLsaPointer": "peer",
    "ncclGetPeerPointer": "peer",
    "ncclGetLsaDeviceAddress": "peer",
    "nvshmem_ptr": "peer",
    "ncclGetLsaMultimemPointer": "multicast",
    "ncclGetMultimemPointer": "multicast",
    "nvshmemx_mc_ptr": "multicast",
    "mc_ptr_at": "multicast",
    "get_buffer_ptrs": "table",
    "get_buffer_ptrs_dev": "table",
    "get_signal_pad_ptrs": "table",
    "get_signal_pad_ptrs_dev": "table",
    "get_multicast_ptr": "multicast",
}
"""Functions whose result points to other ranks' memory."""
PASS_THROUGH = frozenset(
    {"__cvta_generic_to_global", "__builtin_assume_aligned", "launder", "addressof", "data_ptr", "data", "get", "at"}
    | {"slot_of", "advance", "mutable_data_ptr", "const_data_ptr", "load_ptr"}
)
"""Functions whose result points where an argument, or their object, points."""
NVLS_NAMES = frozenset({"mc_ptr"})
"""Members that hold a multicast address (ParallelKittens)."""
PEER_SOURCES = re.compile(
    r"\b(?:cudaIpcOpenMemHandle|cuIpcOpenMemHandle|cuMemImportFromShareableHandle|cudaDeviceEnablePeerAccess"
    r"|nvshmem_ptr|ncclGetLsaPointer|ncclGetPeerPointer|get_buffer_ptrs\w{0,8}|get_signal_pad_ptrs\w{0,8}|pgl)\b"
)
"""In C++: where addresses of other ranks come from."""

_COPY = re.compile(
    r"cudaMemcpy(?:2D|3D)?(?:Peer)?(?:ToArray|FromArray)?(?:Batch)?(?:Async)?"
    r"|cuMemcpy(?:2D|3D)?(?:DtoD|Peer)?(?:Batch)?(?:Async)?(?:_v2)?"
)
_HOST = re.compile(r"HostTo|ToHost")
_NCCL_MOVES = re.compile(
    r"nccl(?:AllReduce|Broadcast|Bcast|Reduce|AllGather|ReduceScatter|AlltoAll|AllToAll|Gather|Scatter|Send|Recv|PutSignal"
    r"|Signal|WaitSignal)"
)
_NVSHMEM_SETUP = re.compile(
    r"nvshmemx?_(?:init\w{0,20}|finalize|malloc|calloc|align|free|my_pe|n_pes|team_\w{0,30}|ptr|mc_ptr|hostlib\w{0,20}"
    r"|cumodule\w{0,20}|collective_launch\w{0,30}|info\w{0,20}|get_uniqueid|set_attr\w{0,30}|buffer_\w{0,20})"
)
_MPI_MOVES = re.compile(
    r"MPI_(?:I?Send|I?Recv|Sendrecv|I?Bcast|I?Reduce|I?Allreduce|I?Allgatherv?|I?Alltoallv?|Put|Get|Barrier|Reduce_scatter)"
)
_GROUP = frozenset(
    {"allreduce", "allgather", "_allgather_base", "alltoall", "alltoall_base", "_reduce_scatter_base", "reduce_scatter"}
    | {"allreduce_coalesced", "allgather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced"}
)
_BULK = re.compile(r"cp_async_bulk\w{0,60}|cp_reduce_async_bulk\w{0,60}|memcpy_async_tx|SM90_(?:TMA|BULK)\w{0,60}")
_BULK_WAITS = re.compile(r"commit|wait|prefetch|fence")
_KITTENS_TMA = frozenset({"store_async", "store_add_async", "store_min_async", "store_max_async", "load_async"})
_KITTENS_SWITCH = frozenset({"reduce", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "ld_reduce"})

_KIT_SYSTEM = frozenset(
    {"st_release_sys", "st_relaxed_sys", "ld_acquire_sys", "ld_relaxed_sys", "cas_release_sys", "cas_acquire_sys"}
    | {
        "add_release_sys",
        "put_signal",
        "wait_signal",
        "wait_reaches",
        "barrier_block",
        "barrier_epoch",
        "barrier_world",
        "announce",
        "await_all",
        "pipeline",
        "finish_grid",
    }
    | {"ld_fresh", "st_fresh"}
)
_KIT_ON_POINTERS = frozenset(
    {"copy", "copy_block", "copy_grid", "reduce_block", "ld_weak", "ld_volatile", "ld_once", "ld_stream", "st_weak"}
    | {"st_stream"}
)
KIT_NAMES = _KIT_SYSTEM | _KIT_ON_POINTERS | {"fence_sys", "multimem_add_release", "Multimem", "slot_of"}
"""What pkb.cuh must define for these tables to be true; a test compares them."""

_MOVES_NOTHING = re.compile(
    r"printf|assert|min|max|sizeof|swap|move|forward|make_\w{1,30}|__isGlobal|__cvta\w{0,40}|is_aligned|uintptr_t|\w{1,30}_t"
    r"|cudaFuncSetAttribute|prefetch\w{0,30}|__builtin\w{0,40}|get_nvls\w{0,10}"
)

_SURE_SM = [Meaning("sm_load_store", False)]


def call_meanings(
    call: Call, kinds: Sequence[Kind | None], *, on_device: bool, resolved: bool, kit: bool, kittens: bool
) -> list[Meaning]:
    """What a call of a function that the candidate does not define itself moves, given what its arguments point to."""
    name, touches_peer = call.name, "peer" in kinds or "table" in kinds
    if _COPY.fullmatch(name):
        return _copy(call, kinds, resolved=resolved)
    library = _library(call)
    if library:
        return library
    if name in POINTER_GETTERS:
        return [
            Meaning(
                "nvls" if POINTER_GETTERS[name] == "multicast" else "sm_load_store", name != "ncclGetLsaMultimemPointer"
            )
        ]
    if "ultimem<" in call.qualifier or name == "multimem_add_release":
        return [Meaning("nvls", False)]
    if _BULK.fullmatch(name) or re.search(r"\bSM90_(?:TMA|BULK)", call.qualifier):
        return _bulk(name, kinds, resolved=resolved)
    if kittens and name in _KITTENS_TMA and "tma" in call.qualifier:
        return _bulk(name, kinds, resolved=True)
    if kittens and (found := _kittens(call, kinds)):
        return found
    if name.startswith("atomic") and name.endswith("_system"):
        return _SURE_SM
    if name == "__threadfence_system" or (kit and name == "fence_sys"):
        return [Meaning("sm_load_store", True)]
    if kit and name in _KIT_SYSTEM:
        return _SURE_SM
    if kit and name in _KIT_ON_POINTERS:
        return _SURE_SM if touches_peer else []
    # A function from a header: what it is handed, it loads or stores.
    return _SURE_SM if on_device and "peer" in kinds and not _MOVES_NOTHING.fullmatch(name) else []


def _copy(call: Call, kinds: Sequence[Kind | None], *, resolved: bool) -> list[Meaning]:
    if any(_HOST.search(argument) for argument in call.arguments):
        return []
    if "Peer" in call.name or "peer" in kinds:
        return [Meaning("copy_engine", False)]
    return [] if resolved else [Meaning("copy_engine", True)]


def _bulk(name: str, kinds: Sequence[Kind | None], *, resolved: bool) -> list[Meaning]:
    if _BULK_WAITS.search(name):
        return []
    if "multicast" in kinds:
        return [Meaning("tma", False), Meaning("nvls", False)]
    if "peer" in kinds:
        return [Meaning("tma", False)]
    return [] if resolved else [Meaning("tma", True)]


def _library(call: Call) -> list[Meaning]:
    name = call.name
    through_object = call.qualifier.endswith(("->", "."))
    moves = (
        _NCCL_MOVES.fullmatch(name)
        or (re.match(r"nvshmemx?_|nvshmemx?i_", name) and not _NVSHMEM_SETUP.fullmatch(name))
        or _MPI_MOVES.fullmatch(name)
        or (name in _GROUP and through_object)
    )
    return [Meaning("library", False)] if moves else []


def _kittens(call: Call, kinds: Sequence[Kind | None]) -> list[Meaning]:
    """ParallelKittens: `signal` and `wait` of a device barrier take an index and a device, so three arguments or more;
    `wait(semaphore, phase)` is a rank's own."""
    if call.name in ("signal", "wait") and len(call.arguments) >= 3:
        return _SURE_SM
    if call.name == "signal_all":
        return [Meaning("nvls", False)]
    if call.name == "barrier_all":
        return [Meaning("nvls", False), *_SURE_SM]
    return [Meaning("nvls", False)] if call.name in _KITTENS_SWITCH and "table" in kinds else []


MENTIONS: dict[str, Meaning] = {
    "thread_scope_system": Meaning("sm_load_store", False),
    "ncclLsaBarrierSession": Meaning("sm_load_store", False),
    "ncclBarrierSession": Meaning("sm_load_store", False),
    "ncclGin": Meaning("library", False),
}
"""Types and constants that say it without a call."""
