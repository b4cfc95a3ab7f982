"""What calls into known libraries move: CUDA's runtime and driver, NCCL and its device side, NVSHMEM, MPI, c10d,
ParallelKittens, libcu++, and the kit's pkb.cuh."""

import re
from typing import Literal, NamedTuple

from pkb.candidates.paths.use import CallContext, Kind, Meaning, PathName

POINTER_GETTERS: dict[str, Kind] = {
    **dict.fromkeys(("ncclGetLsaPointer", "ncclGetPeerPointer", "ncclGetLsaDeviceAddress", "nvshmem_ptr"), "peer"),
    **dict.fromkeys(("ncclGetLsaMultimemPointer", "ncclGetMultimemPointer", "nvshmemx_mc_ptr"), "multicast"),
    **dict.fromkeys(("mc_ptr_at", "get_multicast_ptr"), "multicast"),
    **dict.fromkeys(("get_buffer_ptrs", "get_buffer_ptrs_dev", "get_signal_pad_ptrs"), "table"),
    "get_signal_pad_ptrs_dev": "table",
}
"""Functions whose result points to other ranks' memory."""
PASS_THROUGH = frozenset(
    {"__cvta_generic_to_global", "__builtin_assume_aligned", "launder", "addressof", "data_ptr", "data", "get", "at"}
    | {"slot_of", "advance", "mutable_data_ptr", "const_data_ptr", "load_ptr"}
)
"""Functions whose result points where an argument, or their object, points."""
PEER_SOURCES = re.compile(
    r"\b(?:cudaIpcOpenMemHandle|cuIpcOpenMemHandle|cuMemImportFromShareableHandle|cudaDeviceEnablePeerAccess"
    r"|nvshmem_ptr|ncclGetLsaPointer|ncclGetPeerPointer|get_buffer_ptrs\w*|get_signal_pad_ptrs\w*|pgl)\b"
)
"""In C++: where addresses of other ranks come from."""
MENTIONS: dict[str, Meaning] = {
    "thread_scope_system": Meaning("sm_load_store", False),
    "ncclLsaBarrierSession": Meaning("sm_load_store", False),
    "ncclBarrierSession": Meaning("sm_load_store", False),
    "ncclGin": Meaning("library", False),
}
"""Types and constants that say it without a call."""

KIT_SYSTEM = (
    "st_release_sys|st_relaxed_sys|ld_acquire_sys|ld_relaxed_sys|cas_release_sys|cas_acquire_sys|add_release_sys|put_signal"
    "|wait_signal|wait_reaches|barrier_block|barrier_epoch|barrier_world|announce|await_all|pipeline|finish_grid|ld_fresh|st_fresh"
)
KIT_ON_POINTERS = "copy|copy_block|copy_grid|reduce_block|ld_weak|ld_volatile|ld_once|ld_stream|st_weak|st_stream"
"""Functions of pkb.cuh, as those above; a test asks whether it has them."""
_NVSHMEM_SETUP = (
    r"(?:init\w*|finalize|malloc|calloc|align|free|my_pe|n_pes|team_\w*|ptr|mc_ptr|hostlib\w*|cumodule\w*"
    r"|collective_launch\w*|info\w*|get_uniqueid|set_attr\w*|buffer_\w*)"
)
_NVSHMEM_COLLECTIVE = r"\w*(?:_on_stream|broadcast|alltoall|collect|reduce)\w*"
"""The host's functions, and those by which a team's collective is the library's: what else a kernel calls moves data by its own
loads and stores."""
_MOVES_NOTHING = (
    r"printf|assert|min|max|sizeof|swap|move|forward|make_\w+|__isGlobal|__cvta\w*|is_aligned|\w+_t|cudaFuncSetAttribute"
    r"|prefetch\w*|__builtin\w*|get_nvls\w*"
)


class _KnownCall(NamedTuple):
    path: PathName
    name: str
    when: Literal["always", "weak", "peer", "peer or unresolved", "pointers", "table"] = "always"
    """If handed a peer's pointer; also, as weak evidence, one of unknown origin; a peer's or a table of them; a table."""
    qualifier: str = ".*"
    header: Literal["", "kit", "kittens"] = ""  # without it, the name may mean anything
    arguments: int = 0  # at least


_CALLS = [
    _KnownCall("copy_engine", r"cu(?:da)?Memcpy(?:2D|3D)?Peer\w*"),
    _KnownCall("copy_engine", r"cudaMemcpy(?:2D|3D)?(?:ToArray|FromArray)?(?:Batch)?(?:Async)?", "peer or unresolved"),
    _KnownCall("copy_engine", r"cuMemcpy(?:2D|3D)?(?:DtoD)?(?:Batch)?(?:Async)?(?:_v2)?", "peer or unresolved"),
    _KnownCall("library", r"nccl(?:AllReduce|Broadcast|Bcast|Reduce|AllGather|ReduceScatter|All[tT]oAll|Gather|Scatter"
                          r"|Send|Recv|PutSignal|Signal|WaitSignal)"),
    _KnownCall("library", rf"nvshmemx?i?_(?!{_NVSHMEM_SETUP}$){_NVSHMEM_COLLECTIVE}"),
    _KnownCall("sm_load_store", rf"nvshmemx?i?_(?!{_NVSHMEM_SETUP}$)(?!{_NVSHMEM_COLLECTIVE}$)\w+"),
    _KnownCall("library", r"MPI_(?:I?Send|I?Recv|Sendrecv|I?Bcast|I?Reduce|I?Allreduce|I?Allgatherv?|I?Alltoallv?|Put|Get"
                          r"|Barrier|Reduce_scatter)"),
    _KnownCall("library", r"allreduce|_?allgather(?:_base)?|alltoall(?:_base)?|_?reduce_scatter(?:_base)?"
                          r"|(?:allreduce|allgather_into_tensor|reduce_scatter_tensor)_coalesced", qualifier=r".*(?:->|\.)"),
    _KnownCall("nvls", "ncclGetLsaMultimemPointer"),
    _KnownCall("nvls", "ncclGetMultimemPointer|nvshmemx_mc_ptr|mc_ptr_at|get_multicast_ptr", "weak"),
    _KnownCall("sm_load_store", "|".join(name for name, kind in POINTER_GETTERS.items() if kind != "multicast"), "weak"),
    _KnownCall("nvls", r"\w+", qualifier=r".*[mM]ultimem<.*"),
    _KnownCall("nvls", "multimem_add_release"),
    _KnownCall("tma", r"(?!.*(?:commit|wait|prefetch|fence))(?:cp_(?:reduce_)?async_bulk\w*|memcpy_async_tx"
                      r"|SM90_(?:TMA|BULK)\w*)", "peer or unresolved"),
    _KnownCall("tma", r"\w+", "peer or unresolved", qualifier=r".*\bSM90_(?:TMA|BULK).*"),
    _KnownCall("tma", r"(?:store|store_add|store_min|store_max|load)_async", "peer", r".*tma.*", "kittens"),
    # `signal` and `wait` of a device barrier take an index and a device; `wait(semaphore, phase)` is a rank's own.
    _KnownCall("sm_load_store", "signal|wait", header="kittens", arguments=3),
    _KnownCall("nvls", "signal_all|barrier_all", header="kittens"),
    _KnownCall("sm_load_store", "barrier_all", header="kittens"),
    _KnownCall("nvls", "reduce|all_reduce|broadcast|all_gather|reduce_scatter|ld_reduce", "table", header="kittens"),
    _KnownCall("sm_load_store", r"atomic\w*_system"),
    _KnownCall("sm_load_store", "__threadfence_system", "weak"),
    _KnownCall("sm_load_store", "fence_sys", "weak", header="kit"),
    _KnownCall("sm_load_store", KIT_SYSTEM, header="kit"),
    _KnownCall("sm_load_store", KIT_ON_POINTERS, "pointers", header="kit"),
]  # fmt: skip


def call_meanings(
    name: str, qualifier: str, arguments: list[str], called: CallContext, headers: frozenset[str]
) -> list[Meaning]:
    """What a call of a function that the candidate does not define itself moves, given what its arguments point to."""
    rows = [
        row for row in _CALLS
        if re.fullmatch(row.name, name) and re.fullmatch(row.qualifier, qualifier) and len(arguments) >= row.arguments
        and (not row.header or row.header in headers)
    ]  # fmt: skip
    found: list[Meaning] = []
    peer, table = "peer" in called.kinds, "table" in called.kinds
    for row in rows:
        bulk = "multicast" in called.kinds and row.path == "tma"
        sure = {"peer": peer or bulk, "peer or unresolved": peer or bulk, "pointers": peer or table, "table": table}
        if row.path == "copy_engine" and any(re.search("HostTo|ToHost", argument) for argument in arguments):
            continue
        if sure.get(row.when, row.when == "always"):
            found += [Meaning(row.path, False), *([Meaning("nvls", False)] if bulk else [])]
        elif row.when == "weak" or (row.when == "peer or unresolved" and not called.resolved):
            found.append(Meaning(row.path, True))
    # A function from a header: what it is handed, it loads or stores.
    if not rows and called.on_device and peer and not re.fullmatch(_MOVES_NOTHING, name):
        found.append(Meaning("sm_load_store", False))
    return found
