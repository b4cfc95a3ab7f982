"""The words of this folder, and what one instruction or one call into a known library moves: CUDA's runtime and driver,
NCCL and its device side, NVSHMEM, MPI, c10d, ParallelKittens, libcu++, and the kit's pkb.cuh."""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Literal, NamedTuple

PathName = Literal["copy_engine", "sm_load_store", "tma", "nvls", "library", "none", "unknown"]
Kind = Literal["peer", "table", "multicast", "local"]
"""What a pointer in CUDA code points to: a peer's memory; a table of pointers to peers; an NVLS address; a table that is
known to hold pointers of this rank only."""
DIRECT: frozenset[PathName] = frozenset({"copy_engine", "sm_load_store", "tma", "nvls"})


class Meaning(NamedTuple):
    """What an instruction or a call moves."""

    path: PathName
    weak: bool  # it may serve this rank's own memory, or only prepare a transfer: told where nothing surer is found


class CudaUse(NamedTuple):
    """A meaning at an offset of one of the candidate's strings, its owner."""

    path: PathName
    weak: bool
    owner: int
    at: int


class CallContext(NamedTuple):
    kinds: tuple[Kind | None, ...] = ()  # what its parameters point to
    resolved: bool = False  # all of that is known: a pointer of which nothing is said is this rank's own
    on_device: bool = False


class PathUse(NamedTuple):
    path: PathName
    line: int  # 1-based; 0 for `none`
    text: str
    weak: bool = False


POINTER_GETTERS: dict[str, Kind] = {
    **dict.fromkeys(("ncclGetLsaPointer", "ncclGetPeerPointer", "ncclGetLsaDeviceAddress", "nvshmem_ptr"), "peer"),
    **dict.fromkeys(("ncclGetLsaMultimemPointer", "ncclGetMultimemPointer", "nvshmemx_mc_ptr"), "multicast"),
    **dict.fromkeys(("mc_ptr_at", "get_multicast_ptr"), "multicast"),
    **dict.fromkeys(("get_buffer_ptrs", "get_buffer_ptrs_dev", "get_signal_pad_ptrs"), "table"),
    "get_signal_pad_ptrs_dev": "table",
}  # functions whose result points to other ranks' memory
PASS_THROUGH = frozenset(
    {"__cvta_generic_to_global", "__builtin_assume_aligned", "launder", "addressof", "data_ptr", "data", "get", "at"}
    | {"slot_of", "advance", "mutable_data_ptr", "const_data_ptr", "load_ptr"}
)  # functions whose result points where an argument, or their object, points
PEER_SOURCES = re.compile(
    r"\b(?:cudaIpcOpenMemHandle|cuIpcOpenMemHandle|cuMemImportFromShareableHandle|cudaDeviceEnablePeerAccess"
    r"|nvshmem_ptr|ncclGetLsaPointer|ncclGetPeerPointer|get_buffer_ptrs\w*|get_signal_pad_ptrs\w*|pgl)\b"
)  # in C++: where addresses of other ranks come from
MENTIONS = {"ncclGin": Meaning("library", False)}  # types and constants that say it without a call
_ON_SMS = ("thread_scope_system", "ncclLsaBarrierSession", "ncclBarrierSession", "ncclLLA2ASession")
MENTIONS |= dict.fromkeys(_ON_SMS, Meaning("sm_load_store", False))
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
    _KnownCall("sm_load_store", r"nccl(?:LsaReduce\w*|LsaCopy|MultimemReduce\w*LsaCopy)"),
    _KnownCall("nvls", r"ncclGetLsaMultimemPointer|ncclMultimem\w+|ncclLsaReduce\w*MultimemCopy"),
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
    """Of a function that the candidate does not define itself."""
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


# Bounded, and one instruction is read once: the text comes from a candidate.
_OPERATION = re.compile(r"(?<![\w.$%])(?:multimem|cp|ld|st|atom|red|fence|membar|tensormap)\.[\w.:]{1,120}")
_ADDRESS = re.compile(r"\[\s{0,4}(?:[%$](\d{1,2})|%\[(\w{1,40})\]|(%?\w{1,40}))")
_MAX_OPERANDS = 200
_MAX_INSTRUCTIONS = 10_000
_NOT_GLOBAL = ("shared", "local", "param", "const")


class Instruction(NamedTuple):
    name: str
    addresses: tuple[str, ...]
    """Operand numbers or names inside brackets: `0` of `[%0+16]`, `dst` of `[%[dst]]`."""
    at: int


def instructions(text: str) -> Iterator[Instruction]:
    for match in islice(_OPERATION.finditer(text), _MAX_INSTRUCTIONS):
        end = text.find(";", match.end(), match.end() + _MAX_OPERANDS)
        operands = text[match.end() : end if end >= 0 else match.end() + _MAX_OPERANDS]
        if end < 0 and (not operands.lstrip().startswith(("[", "%", "{", "$")) or ")" in operands):
            continue  # a sentence that names an instruction
        addresses = tuple(next(group for group in found if group) for found in _ADDRESS.findall(operands))
        yield Instruction(match.group().rstrip(".:"), addresses, match.start())


def meanings(instruction: Instruction, kind_of: Callable[[str], Kind | None], *, resolved: bool) -> list[Meaning]:
    """What one instruction moves. `kind_of` tells what an address operand points to; `resolved`: every pointer that could
    be a peer's is known, so an unknown one is this rank's own."""
    parts = instruction.name.split(".")
    kinds = {kind_of(address) for address in instruction.addresses}
    if parts[0] in ("multimem", "cp") and not instruction.addresses:
        return []  # a wait, or a name in a sentence
    if parts[0] == "multimem":
        moves = [Meaning("nvls", False)] if parts[1] in ("ld_reduce", "st", "red", "cp") else []
        return moves + ([Meaning("tma", False)] if "bulk" in parts else [])
    if parts[0] == "cp":
        return _copy(parts, kinds, resolved=resolved)
    if parts[0] in ("fence", "membar"):
        return [Meaning("sm_load_store", True)] if "sys" in parts else []
    if parts[0] == "tensormap" or not instruction.addresses or any(part.startswith(_NOT_GLOBAL) for part in parts):
        return []
    shared_with_others = "sys" in parts or "mmio" in parts
    return [Meaning("sm_load_store", False)] if shared_with_others or "peer" in kinds else []


def _copy(parts: list[str], kinds: set[Kind | None], *, resolved: bool) -> list[Meaning]:
    if "bulk" not in parts:  # cp.async of sm_80: the SM's own load, straight into shared memory
        return [Meaning("sm_load_store", False)] if "peer" in kinds else []
    waits = {"commit_group", "wait_group", "prefetch"} & set(parts)
    if waits or not any(part == "global" or part == "tensor" for part in parts):
        return []  # waits move nothing; without `global` it goes between the shared memories of a cluster
    if "multicast" in kinds:
        return [Meaning("tma", False), Meaning("nvls", False)]
    if "peer" in kinds or "table" in kinds:
        return [Meaning("tma", False)]
    return [] if resolved else [Meaning("tma", True)]
