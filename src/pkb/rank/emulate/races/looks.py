"""What the host looks at. A flag that is known for one orders what follows by itself; but Python may also wait for bytes of
peers that nobody can tell from data, and what such a wait orders is not in the log. Whether there was such a look is kept here.
"""

from collections.abc import Iterable

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from pkb.rank.emulate.races import operations

_state = {"unknown": False}
_from_peers: dict[int, StorageWeakRef] = {}
"""Storages that hold what was read from symmetric memory, other than flags, by their addresses. Only while they live: memory
that was given back is handed out again, also to tensors that no operator has made, and these hold nothing of a peer's."""
_MANY = 256
"""Of such storages: those that are gone are dropped."""
_COUNTERS = (torch.int32, torch.int64, torch.uint32)


def forget() -> None:
    _state["unknown"] = False
    _from_peers.clear()


def unknown() -> bool:
    """Whether the host has looked at memory of peers in which there may be flags that are not known for flags."""
    return _state["unknown"]


def followed(given: Iterable[torch.Tensor], results: Iterable[torch.Tensor], *, host: bool) -> None:
    """An operator has made `results` (and what it has written) of `given`, and where `host` the host has seen it."""
    carries = any(map(_of_peers, given))
    if carries and host:
        _state["unknown"] = True
    for tensor in results:
        storage = tensor.untyped_storage()
        if carries:
            _from_peers[storage.data_ptr()] = StorageWeakRef(storage)
        else:
            _from_peers.pop(storage.data_ptr(), None)
    if carries and len(_from_peers) > _MANY:
        for place in [place for place, storage in _from_peers.items() if storage.expired()]:
            del _from_peers[place]


def written(tensor: torch.Tensor) -> None:
    """More integers at once than are taken for flags may still be flags."""
    if tensor.dtype in _COUNTERS and _symmetric(tensor) and not operations.may_be_flags(tensor):
        _state["unknown"] = True


def _of_peers(tensor: torch.Tensor) -> bool:
    if tensor.numel() == 0 or tensor.device.type != "cpu":
        return False
    if _symmetric(tensor):
        return not operations.may_be_flags(tensor)
    held = _from_peers.get(tensor.untyped_storage().data_ptr())
    return held is not None and not held.expired()


def _symmetric(tensor: torch.Tensor) -> bool:
    return any(begin <= tensor.data_ptr() < begin + size for begin, size in operations.symmetric.items())
