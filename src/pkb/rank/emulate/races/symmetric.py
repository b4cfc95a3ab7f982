"""Symmetric memory: which addresses are whose, and what its handles' operations order.

They are those of torch on a GPU. `barrier`, `put_signal` and `wait_signal` are kernels of the current stream that change words
of the pads by compare-and-swap: release to send, acquire to receive, at system scope. `stream_write_value32` is a write of the
stream behind a barrier of memory, hence a release; `memset32` is a plain one.

A rendezvous is no barrier of streams. torch promises no more than "a collective operation". What it does
(CUDASymmetricMemory.cu, `make_peer_alloc_info`): hosts exchange handles, map, meet in the store, and then each waits for its
own current stream, into which it has put the tables of pointers. So what a rank put on its stream before it may still run when
its peers have come back; it is over for all who have come back from the next rendezvous. An allocation waits for the
current stream too, since it zeroes the pad.
"""

import contextlib
import functools
import hashlib
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from pkb.rank.emulate import recorder
from pkb.rank.emulate.races import operations, sites
from pkb.rank.emulate.recorder import AccessWay, Host, Order, Scope
from pkb.rank.symmetric import region as regions
from pkb.rank.symmetric import rendezvous
from pkb.rank.symmetric.handle import Handle
from pkb.rank.symmetric.region import Region, file_bytes

WORD = 4


@contextlib.contextmanager
def watched(rank: int) -> Iterator[None]:
    def tell_new(region: Region) -> None:
        if region.owner is None:
            operations.host_waits()
        tell(region)

    def tell(region: Region) -> None:
        size = file_bytes(region.data_bytes, region.pad_bytes)
        owner = rank if region.owner is None else region.owner
        recorder.memory(region.address, size, allocation=region.number, owner=owner)
        operations.symmetric[region.address] = size
        weakref.finalize(region, _unmapped, region.address, size)

    for region in regions.owned():
        tell(region)
        for handle in region.handles.values():
            for part in handle._regions:
                if part is not region:
                    tell(part)
    set_word, write_value, memset, meet = (
        Handle._set_word,
        Handle.stream_write_value32,
        Handle.memset32,
        rendezvous.meet,
    )
    regions.ON_MAP = tell_new
    Handle._set_word = _set_word  # type: ignore[method-assign]
    Handle.stream_write_value32 = staticmethod(_stream_write_value32)  # type: ignore[method-assign]
    Handle.memset32 = staticmethod(functools.partial(_memset32, memset))  # type: ignore[method-assign, assignment]
    modules = _modules_with(meet)
    for module in modules:
        module.meet = functools.partial(_meet, meet, itertools.count())
    try:
        yield
    finally:
        regions.ON_MAP = None
        Handle._set_word = set_word  # type: ignore[method-assign]
        Handle.stream_write_value32 = staticmethod(write_value)  # type: ignore[method-assign]
        Handle.memset32 = staticmethod(memset)  # type: ignore[method-assign]
        for module in modules:
            module.meet = meet


def _unmapped(address: int, size: int) -> None:
    operations.symmetric.pop(address, None)
    operations.fresh(address, size)


def _modules_with(meet: Any) -> list[Any]:
    from pkb.rank.symmetric import memory

    return [module for module in (rendezvous, memory) if module.__dict__.get("meet") is meet]


def _set_word(self: Handle, owner: int, index: int, value: int) -> None:
    """A signal sent (1) or taken (0): a compare-and-swap that succeeds, since nobody else writes this value to this word."""
    site = sites.of_caller("symm_mem signal" if value else "symm_mem wait")
    with operations.operation(site):
        order = Order.RELEASE if value else Order.ACQUIRE
        _strongly(self._pads[owner] + WORD * index, value, way=AccessWay.UPDATE, order=order, site=site)


def _strongly(address: int, value: int, *, way: AccessWay, order: Order, site: int) -> None:
    import ctypes

    recorder.lock()
    try:
        ctypes.c_uint32.from_address(address).value = value
        recorder.strong(address, WORD, way=way, order=order, scope=Scope.SYS, site=site)
    finally:
        recorder.unlock()


def _stream_write_value32(input: torch.Tensor, offset: int, val: int) -> torch.Tensor:
    site = sites.of_caller("stream_write_value32")
    with operations.operation(site):
        _strongly(input.data_ptr() + WORD * offset, val, way=AccessWay.WRITE, order=Order.RELEASE, site=site)
    return input


def _memset32(memset: Any, input: torch.Tensor, offset: int, val: int, count: int = 1) -> torch.Tensor:
    site = sites.of_caller("memset32")
    with operations.operation(site):
        recorder.access(input.data_ptr() + WORD * offset, WORD * count, write=True, site=site)
    return memset(input, offset, val, count)  # type: ignore[no-any-return]


def _meet(meet: Any, count: Iterator[int], region: Region, group: dist.ProcessGroup, **options: Any) -> Handle:
    """The n-th rendezvous of a group on one rank meets the n-th on the others: it is known by the files that they offer."""
    if group.group_name in region.handles:
        return meet(region, group, **options)  # type: ignore[no-any-return]
    ranks = dist.get_process_group_ranks(group)
    turn = rendezvous._sequence.get(f"{group.group_name}/{'_'.join(map(str, ranks))}", 0)
    site = sites.of_caller("symm_mem.rendezvous")
    for rank in ranks:
        if rank == dist.get_rank():
            recorder.host(Host.SIGNAL, key("rendezvous", group.group_name, *ranks, turn, rank), site=site)
    handle = meet(region, group, **options)
    for rank in ranks:
        if rank != dist.get_rank():
            recorder.host(Host.WAIT, key("rendezvous", group.group_name, *ranks, turn, rank), site=site)
    operations.host_waits()
    return handle  # type: ignore[no-any-return]


def key(*parts: Any) -> int:
    """64 bits that ranks agree on without asking each other."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")
