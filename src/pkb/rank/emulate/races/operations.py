"""Operations of a stream that Python does at once: operators of torch, launches of Triton, barriers of symmetric memory."""

import contextlib
import itertools
from collections.abc import Iterator

import torch

from pkb.rank.emulate import cuda_stand_ins, recorder
from pkb.rank.emulate.recorder import AccessWay, Host, Order, Scope

MOST_RUNS = 4096
"""Of a tensor with gaps. One with more is recorded in part: what is not recorded is not held against anybody."""
FLAG_BYTES = 1024
_ORDINARY = 1 << 31
_names = itertools.count(_ORDINARY)
_state = {"rank": 0}
symmetric: dict[int, int] = {}
"""Addresses and bytes of symmetric memory, while it is mapped: never somebody's new memory."""


def set_rank(rank: int) -> None:
    _state["rank"] = rank


def current_stream() -> int:
    return int(getattr(getattr(cuda_stand_ins._state, "stream", None), "cuda_stream", 0))


@contextlib.contextmanager
def operation(site: int = 0) -> Iterator[None]:
    """What is recorded inside is done in the order of the current stream; the host does not wait for it."""
    recorder.host(Host.OPERATION_BEGIN, current_stream(), site=site)
    try:
        yield
    finally:
        recorder.host(Host.OPERATION_END, site=site)


def host_waits(stream: int | None = None) -> None:
    """The host has waited for a stream, by default the current one."""
    recorder.host(Host.STREAM_JOIN, current_stream() if stream is None else stream)


def touch(tensor: torch.Tensor, *, write: bool, site: int) -> None:
    """An access to all elements of a tensor, and to no byte between them."""
    for begin, size in runs(tensor):
        recorder.access(begin, size, write=write, site=site)


def may_be_flags(tensor: torch.Tensor) -> bool:
    """A few integers in symmetric memory: what candidates signal by where they have operators only."""
    if (
        tensor.dtype not in (torch.int32, torch.int64, torch.uint32)
        or tensor.numel() * tensor.element_size() > FLAG_BYTES
    ):
        return False
    return tensor.device.type == "cpu" and any(b <= tensor.data_ptr() < b + n for b, n in symmetric.items())


@contextlib.contextmanager
def strongly() -> Iterator[None]:
    """What is done and recorded inside has one place in the order of all ranks."""
    recorder.lock()
    try:
        yield
    finally:
        recorder.unlock()


def signal(tensor: torch.Tensor, *, write: bool, site: int) -> None:
    """An operator is a kernel: what its stream did before it is over when it writes a word, and it is a new one that reads a
    word. So words are released and acquired, at system scope. (That holds for a word, not for data.) A store is a plain one all
    the same: one that zeroes flags while a peer sets them loses a signal."""
    way = AccessWay.WRITE if write else AccessWay.READ
    size = tensor.element_size()
    for begin, length in runs(tensor):
        for at in range(begin, begin + length, size):
            recorder.strong(at, size, way=way, order=Order.OPERATOR, scope=Scope.SYS, site=site)


def runs(tensor: torch.Tensor) -> Iterator[tuple[int, int]]:
    """Addresses and sizes of the pieces without gaps that a tensor's elements lie in."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.numel() == 0:
        return
    length = tensor.element_size()
    dims = [(n, step) for n, step in zip(tensor.size(), tensor.stride(), strict=True) if n > 1 and step]
    for n, step in sorted(dims, key=lambda dim: dim[1]):
        if step * tensor.element_size() != length:
            break
        length *= n
        dims.remove((n, step))
    places = itertools.product(*(range(0, n * step, step) for n, step in dims))
    for place in itertools.islice(places, MOST_RUNS):
        yield tensor.data_ptr() + sum(place) * tensor.element_size(), length


def fresh(address: int, size: int) -> None:
    """New memory at an address that may have been used before: what was done to it then concerns nobody now. (An allocator
    of a GPU gives memory back in stream order; that of the host does not know streams.)"""
    if size and not any(begin <= address < begin + length for begin, length in symmetric.items()):
        recorder.memory(address, size, allocation=next(_names) & 0xFFFFFFFF, owner=_state["rank"])
