"""Collectives and messages of process groups, as edges between ranks.

They are those of NCCL: work of the current stream, which waits for what was put on it before, and which the current stream
waits for where the candidate does (`work.wait()`, or a call that is not asynchronous). Who waits for whom is what the
collective needs.
"""

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from pkb.rank.emulate import recorder
from pkb.rank.emulate.races import operations, sites
from pkb.rank.emulate.races.symmetric import key
from pkb.rank.emulate.recorder import Host

FROM_ROOT, TO_ROOT = ("broadcast", "scatter"), ("reduce", "gather")
FROM_ALL = (
    "allreduce", "allreduce_coalesced", "allgather", "_allgather_base", "allgather_coalesced",
    "allgather_into_tensor_coalesced", "all_gather_single", "all_gather_single_coalesced", "reduce_scatter",
    "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "reduce_scatter_single",
    "reduce_scatter_single_coalesced", "alltoall", "alltoall_base", "all_to_all_single", "barrier",
)  # fmt: skip
MESSAGES = ("send", "recv")

_counts: Counter[Any] = Counter()
_awaited: "weakref.WeakKeyDictionary[Any, list[int]]" = weakref.WeakKeyDictionary()
_barriers: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""Work that the host itself waits for, as NCCL's does."""


@contextlib.contextmanager
def watched() -> Iterator[None]:
    _counts.clear()
    group_class, work_class = cast(Any, dist.ProcessGroup), cast(Any, dist.Work)
    before = {
        name: getattr(group_class, name)
        for name in (*FROM_ROOT, *TO_ROOT, *FROM_ALL, *MESSAGES)
        if hasattr(group_class, name)
    }
    wait = work_class.wait
    for name, method in before.items():
        setattr(group_class, name, _started(name, method))
    work_class.wait = _waited(wait)
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(group_class, name, method)
        work_class.wait = wait


def _started(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def start(self: Any, *arguments: Any, **options: Any) -> Any:
        site = sites.of_caller(f"dist.{name}")
        sent, awaited = _keys(self, name, arguments, options)
        with operations.operation(site):
            for one in sent:
                recorder.host(Host.SIGNAL, one, site=site)
        work = method(self, *arguments, **options)
        if work is not None and awaited:
            _awaited[work] = awaited
            if name == "barrier":
                _barriers.add(work)
        return work

    return start


def _waited(wait: Callable[..., Any]) -> Callable[..., Any]:
    def waited(self: Any, *arguments: Any, **options: Any) -> Any:
        result = wait(self, *arguments, **options)
        if awaited := _awaited.pop(self, None):
            site = sites.of_caller("dist wait")
            with operations.operation(site):
                for one in awaited:
                    recorder.host(Host.WAIT, one, site=site)
            if self in _barriers:
                _barriers.discard(self)
                operations.host_waits()
        return result

    return waited


def functional(func: Any, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A functional collective: here it is waited for at once."""
    named = [value for value in (*arguments, *options.values()) if isinstance(value, str)]
    group = distributed_c10d._resolve_process_group(named[-1])  # type: ignore[attr-defined, arg-type]
    site = sites.of_caller(f"dist.{name}")
    sent, awaited = _keys(group, name, (), {})
    with operations.operation(site):
        for one in sent:
            recorder.host(Host.SIGNAL, one, site=site)
    result = func(*arguments, **options)
    for tensor in result if isinstance(result, (list, tuple)) else [result]:
        torch.ops._c10d_functional.wait_tensor(tensor)
    with operations.operation(site):
        for one in awaited:
            recorder.host(Host.WAIT, one, site=site)
    return result


def _keys(group: Any, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[list[int], list[int]]:
    """What this rank signals when it begins, and what it waits for."""
    rank, size = group.rank(), group.size()
    ranks = tuple(dist.get_process_group_ranks(group)) if group in dist.distributed_c10d._world.pg_group_ranks else ()
    which = (group.group_name, ranks)
    if name in MESSAGES:
        peer = int(options.get("dstRank", options.get("srcRank", arguments[1] if len(arguments) > 1 else 0)))
        tag = int(options.get("tag", arguments[2] if len(arguments) > 2 else 0))
        pair = (rank, peer) if name == "send" else (peer, rank)
        _counts[which, pair, tag, name] += 1
        message = key("message", which, pair, tag, _counts[which, pair, tag, name])
        return ([message], []) if name == "send" else ([], [message])
    _counts[which] += 1
    keys = [key("collective", which, _counts[which], peer) for peer in range(size)]
    root = next((int(value.rootRank) for value in (*arguments, *options.values()) if hasattr(value, "rootRank")), None)
    if name in FROM_ROOT and root is not None:
        return ([keys[rank]], []) if rank == root else ([], [keys[root]])
    if name in TO_ROOT and root is not None:
        return ([], [keys[peer] for peer in range(size) if peer != rank]) if rank == root else ([keys[rank]], [])
    return [keys[rank]], [keys[peer] for peer in range(size) if peer != rank]
