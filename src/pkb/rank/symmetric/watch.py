"""Watches torch's own symmetric memory where ranks run on GPUs: the same counts, last call and poison as on the cpu
platform.

Nothing is replaced, only wrapped. Members of the class are wrapped rather than functions of the module, because the
functions call them: a candidate that goes straight to `_SymmetricMemory.rendezvous` is seen as well. Signals and
barriers only start a kernel and return, so the last call is published and stays: a rank that hangs in a
synchronisation later hangs in what it started last.
"""

import functools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from pkb.kit.nvshmem.memory import heap_tensors
from pkb.rank.symmetric.activity import ACTIVITY, SymmetricActivity
from pkb.rank.symmetric.poisoning import poison_data

__all__ = ["ACTIVITY", "SymmetricActivity", "is_a_peers", "poison", "watch"]

PEER_POINTERS = ("buffer_ptrs", "buffer_ptrs_dev", "signal_pad_ptrs", "signal_pad_ptrs_dev", "multicast_ptr")

_tensors: dict[int, "weakref.ref[torch.Tensor]"] = {}
"""What `empty` returned, by id, while it lives."""
_handles: dict[int, tuple[Callable[[], Any], torch.dtype]] = {}
"""What `rendezvous` returned and the dtype of its tensor: the tensor may be gone while the candidate still uses the
handle. A handle that is not here was made before `watch`: the harness's own, whose barriers are nothing the candidate
did."""


class _Met(NamedTuple):
    """Memory that ranks have mapped of each other. It stays mapped as long as the tensor lives that was brought along, whether
    or not anybody keeps the handle."""

    own: StorageWeakRef
    peers: tuple[range, ...]
    """Addresses of the others' parts in this process."""


_met: dict[tuple[int, Any], _Met] = {}
"""By the storage of the tensor, whose address is nobody else's while it is referred to, and by the group."""


def watch(module: Any = None) -> list[str]:
    """Wraps what can be wrapped, once; returns the names of what could not be, for the record."""
    if module is None:
        import torch.distributed._symmetric_memory as module  # type: ignore[no-redef]
    cls = module._SymmetricMemory
    if getattr(cls, "_pkb_watched", False):
        return []
    wrappers: dict[str, Callable[[Any], Any]] = {
        "empty_strided_p2p": _wrap_allocation,
        "rendezvous": _wrap_rendezvous,
        "barrier": _wrap_barrier,
        "put_signal": functools.partial(_wrap_signal, "put_signal"),
        "wait_signal": functools.partial(_wrap_signal, "wait_signal"),
        "get_buffer": _wrap_peer_memory,
        "get_signal_pad": _wrap_peer_memory,
        "get_remote_tensor": _wrap_peer_memory,
    }
    wrappers |= dict.fromkeys(PEER_POINTERS, _wrap_pointers)
    refused = []
    for name, wrap in wrappers.items():
        if not hasattr(cls, name):
            continue  # an older torch has fewer
        try:
            setattr(cls, name, wrap(cls.__dict__.get(name, getattr(cls, name))))
        except (AttributeError, TypeError):
            refused.append(name)
            if name == "rendezvous":  # the class is closed: see at least those who go through the module
                module.rendezvous = _wrap_rendezvous(module.rendezvous).__func__
            elif name == "empty_strided_p2p":
                module.empty = _wrap_allocation(module.empty).__func__
    _count_library_operators()
    try:
        cls._pkb_watched = True
    except (AttributeError, TypeError):
        refused.append("_pkb_watched")
    return refused


LIBRARY_OPERATORS = (
    "one_shot_all_reduce", "one_shot_all_reduce_out", "one_shot_all_reduce_copy", "one_shot_all_reduce_copy_out",
    "two_shot_all_reduce_", "two_shot_all_reduce_out", "multimem_all_reduce_", "multimem_one_shot_all_reduce",
    "multimem_one_shot_all_reduce_out", "multimem_all_gather_out", "reduce_scatter_out", "all_to_all_vdev",
    "all_to_all_vdev_2d", "all_to_all_vdev_2d_offset", "nvshmem_all_to_all", "nvshmem_broadcast", "tile_reduce",
    "multi_root_tile_reduce", "fused_all_gather_matmul", "fused_matmul_reduce_scatter", "_low_contention_all_gather",
    "_low_contention_reduce_scatter", "fused_all_gather_scaled_matmul", "fused_scaled_matmul_reduce_scatter",
    "multimem_one_shot_reduce_out", "nccl_reduce_scatter_offset", "nccl_put", "nccl_get", "nccl_put_signal",
    "nccl_put_with_signal", "nvshmem_put", "nvshmem_get", "nvshmem_put_with_signal",
)  # fmt: skip
"""Torch's operators on symmetric memory that move data."""


class _Counted:
    """One of torch's own operators on symmetric memory: works as before, and is counted as library code."""

    def __init__(self, operator: Any) -> None:
        self._operator = operator

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        ACTIVITY.library_reductions += 1
        return self._operator(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._operator, name)
        return _Counted(inner) if name in ("default", "out") else inner


def _count_library_operators() -> None:
    for name in LIBRARY_OPERATORS:
        if hasattr(torch.ops.symm_mem, name):
            setattr(torch.ops.symm_mem, name, _Counted(getattr(torch.ops.symm_mem, name)))


def poison() -> int:
    """NaN for the data in this rank's floating-point allocations, in stream order; returns their bytes.

    Integers may be flags and stay as they are, and so do signal pads. Memory whose tensor and handle the candidate
    dropped can no longer be reached; nor can the candidate reach it, but through raw pointers it kept. Of NVSHMEM's heap, what
    the kit has allocated.
    """
    done: dict[int, int] = {}
    for reference in list(_tensors.values()):
        tensor = reference()
        if tensor is not None and _may_hold_nan(tensor.dtype):
            flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
            done[flat.data_ptr()] = poison_data(flat)
    for handle_reference, dtype in list(_handles.values()):
        handle = handle_reference()
        if handle is not None and _may_hold_nan(dtype):
            flat = _unwatched(handle, handle.buffer_size // dtype.itemsize, dtype)
            if flat.data_ptr() not in done:
                done[flat.data_ptr()] = poison_data(flat)
    for made in heap_tensors():
        if _may_hold_nan(made.dtype):
            done[made.data_ptr()] = poison_data(made)
    return sum(done.values())


def is_a_peers(tensor: torch.Tensor) -> bool:
    """Whether its first element lies in symmetric memory of another rank, of which the tensor or the handle is alive."""
    alive = [met.peers for met in list(_met.values()) if not met.own.expired()]
    alive += [_of_peers(handle) for reference, _ in list(_handles.values()) if (handle := reference()) is not None]
    return any(tensor.data_ptr() in there for peers in alive for there in peers)


def _of_peers(handle: Any) -> tuple[range, ...]:
    before = ACTIVITY.peer_accesses
    try:
        starts = [start for rank, start in enumerate(handle.buffer_ptrs) if rank != handle.rank]
        return tuple(range(start, start + handle.buffer_size) for start in starts)
    except RuntimeError:  # a kind of symmetric memory that hands out no addresses
        return ()
    finally:
        ACTIVITY.peer_accesses = before


def _note_peers(tensor: torch.Tensor, group: Any, handle: Any) -> None:
    storage = tensor.untyped_storage()
    if (key := (storage._cdata, group)) not in _met:  # else it is asked for in every call
        for gone in [key for key, met in _met.items() if met.own.expired()]:
            del _met[gone]
        _met[key] = _Met(StorageWeakRef(storage), _of_peers(handle))


def _may_hold_nan(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _unwatched(handle: Any, count: int, dtype: torch.dtype) -> torch.Tensor:
    before = ACTIVITY.peer_accesses
    flat: torch.Tensor = handle.get_buffer(handle.rank, [count], dtype)
    ACTIVITY.peer_accesses = before
    return flat


# --- wrappers ---


def _plain(member: Any) -> Callable[..., Any]:
    """The callable behind a static method; anything else is callable itself."""
    return member.__func__ if isinstance(member, staticmethod) else member


def _wrap_allocation(member: Any) -> Any:
    allocate = _plain(member)

    @functools.wraps(allocate)
    def empty(*arguments: Any, **options: Any) -> Any:
        tensor = allocate(*arguments, **options)
        key = id(tensor)
        _tensors[key] = weakref.ref(tensor, lambda _: _tensors.pop(key, None))
        return tensor

    return staticmethod(empty)


def _wrap_rendezvous(member: Any) -> Any:
    meet = _plain(member)

    @functools.wraps(meet)
    def rendezvous(tensor: Any, *arguments: Any, **options: Any) -> Any:
        ACTIVITY.waiting("rendezvous")
        handle = meet(tensor, *arguments, **options)
        ACTIVITY.done()  # this one does wait on the host
        if handle is not None:
            key = id(handle)
            try:
                reference: Callable[[], Any] = weakref.ref(handle, lambda _: _handles.pop(key, None))
            except TypeError:  # a binding without weak references: keep the handle, rather than break the candidate

                def reference() -> Any:
                    return handle

            _handles[key] = (reference, tensor.dtype)
            _note_peers(tensor, next(iter((*arguments, *options.values())), None), handle)
        return handle

    return staticmethod(rendezvous)


def _wrap_barrier(member: Any) -> Any:
    function = _bindable(member)

    def barrier(self: Any, channel: int = 0, timeout_ms: int = 0) -> None:
        if id(self) in _handles:
            ACTIVITY.waiting(f"barrier(channel={channel}) of rank {self.rank}")
        function(self, channel, timeout_ms)

    return barrier


def _wrap_signal(name: str, member: Any) -> Any:
    function = _bindable(member)
    direction = "to" if name == "put_signal" else "from"
    peer_name = "dst_rank" if name == "put_signal" else "src_rank"

    def signal(self: Any, *arguments: Any, **options: Any) -> None:
        if id(self) in _handles:
            peer = options.get(peer_name, arguments[0] if arguments else "?")
            channel = options.get("channel", arguments[1] if len(arguments) > 1 else 0)
            ACTIVITY.waiting(f"{name}(channel={channel}) of rank {self.rank} {direction} rank {peer}")
        function(self, *arguments, **options)

    signal.__name__ = name
    return signal


def _wrap_peer_memory(member: Any) -> Any:
    function = _bindable(member)

    @functools.wraps(function)
    def get(self: Any, *arguments: Any, **options: Any) -> Any:
        peer = arguments[0] if arguments else options.get("rank", options.get("peer"))
        if peer != self.rank:
            ACTIVITY.peer_accesses += 1
        return function(self, *arguments, **options)

    return get


def _wrap_pointers(member: Any) -> Any:
    if not isinstance(member, property) or member.fget is None:
        raise TypeError("not a property: leave it alone")
    read = member.fget

    def pointers(self: Any) -> Any:
        value = read(self)
        ACTIVITY.peer_accesses += bool(value)  # a multicast pointer of 0 reaches nobody
        return value

    return property(pointers)


def _bindable(member: Any) -> Callable[..., Any]:
    """A method as a plain function of (self, ...): pybind keeps it in an instancemethod, which calls so already."""
    return getattr(member, "__func__", member)
