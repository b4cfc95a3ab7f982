"""Rendezvous on the cpu platform: the ranks of a group tell each other their files and map them.

It goes through the store of the process group, as in torch, in the order of the calls: the n-th rendezvous of a group
on one rank meets the n-th on the others. A peer that allocated another size, or never comes, is named in the error.
"""

import json
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from pkb.rank.symmetric.activity import ACTIVITY
from pkb.rank.symmetric.handle import Handle
from pkb.rank.symmetric.region import Region, attach

_sequence: dict[str, int] = {}
ON_HANDLE: list[Callable[[Handle], None]] = []
"""Told of every new handle, where somebody wants to know: an emulated switch, or who names the setter of a flag."""


def resolve_group(group: Any) -> dist.ProcessGroup:
    """A group from all that candidates pass: a group, its name, or None for all ranks."""
    if group is None or group == "":
        group = dist.group.WORLD
    if isinstance(group, str):
        return c10d._resolve_process_group(group)  # type: ignore[attr-defined,arg-type]
    if isinstance(group, dist.ProcessGroup):
        return group
    raise TypeError(f"rendezvous: unsupported group type: {type(group)}")


def meet(region: Region, group: dist.ProcessGroup, *, timeout_s: float, handle_class: type[Handle]) -> Handle:
    """The handle of this region in this group; a collective call the first time, a look-up after that."""
    name = group.group_name
    known = region.handles.get(name)
    if isinstance(known, Handle):
        return known
    ranks = dist.get_process_group_ranks(group)
    rank = dist.get_rank(group)
    # Two disjoint groups may bear one name; their global ranks tell them apart.
    scope = f"{name}/{'_'.join(map(str, ranks))}"
    turn = _sequence[scope] = _sequence.get(scope, 0) + 1
    store = c10d.PrefixStore(f"pkb_symmetric/{scope}/{turn}", c10d._get_default_store())
    wait = _Wait(store, rank=rank, ranks=ranks, what=f"rendezvous {turn} of group {name!r}", timeout_s=timeout_s)

    mine = {"file": region.path.name, "bytes": region.data_bytes, "pad": region.pad_bytes, "number": region.number}
    store.set(f"offer/{rank}", json.dumps(mine))
    offers = [json.loads(wait.read("offer", peer)) for peer in range(len(ranks))]
    _check_equal(offers, rank, what=wait.what)
    regions = [
        region if peer == rank else attach(region.path.parent / Path(offer["file"]).name, data_bytes=offer["bytes"],
                                           pad_bytes=offer["pad"], number=int(offer["number"]), owner=ranks[peer])
        for peer, offer in enumerate(offers)
    ]  # fmt: skip
    # Nobody returns before all have mapped: a rank that drops its tensor at once would take the file away from the
    # others.
    store.set(f"mapped/{rank}", "1")
    for peer in range(len(ranks)):
        wait.read("mapped", peer)
    ACTIVITY.done()
    handle = handle_class(regions, rank=rank, group_name=name)
    for told in ON_HANDLE:
        told(handle)
    region.handles[name] = handle
    return handle


class _Wait:
    def __init__(self, store: Any, *, rank: int, ranks: list[int], what: str, timeout_s: float) -> None:
        self._store, self._rank, self._ranks, self.what, self._timeout_s = store, rank, ranks, what, timeout_s
        self._give_up = time.monotonic() + timeout_s

    def read(self, step: str, peer: int) -> str:
        key = f"{step}/{peer}"
        if not self._store.check([key]):
            ACTIVITY.waiting(f"{self.what} waiting for rank {peer}")
            left_s = max(self._give_up - time.monotonic(), 0.001)
            try:
                self._store.wait([key], timedelta(seconds=left_s))
            except RuntimeError as error:  # the store's timeouts derive from it
                absent = [r for r in range(len(self._ranks)) if not self._store.check([f"{step}/{r}"])]
                raise RuntimeError(
                    f"{self.what}: rank {self._rank} waited {self._timeout_s:g} s, and rank(s) {absent} did not come"
                ) from error
        return str(self._store.get(key).decode())


def _check_equal(offers: list[dict[str, Any]], rank: int, *, what: str) -> None:
    for field, noun in (("bytes", "allocated"), ("pad", "has a signal pad of")):
        sizes = [offer[field] for offer in offers]
        if len(set(sizes)) > 1:
            listed = ", ".join(f"rank {peer} {noun} {size} bytes" for peer, size in enumerate(sizes))
            raise RuntimeError(
                f"{what} on rank {rank}: symmetric memory needs the same size on every rank, but {listed}"
            )
