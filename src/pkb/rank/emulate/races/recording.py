"""Calls of a candidate in this rank, recorded: everything that they do to memory is told to the recorder."""

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pkb.rank.emulate import recorder
from pkb.rank.emulate.races import groups, looks, operations, operators, sites, symmetric
from pkb.rank.emulate.recorder import Host
from pkb.rank.trees import BadTree, tensors_in


def install(rank: int) -> contextlib.ExitStack:
    """Everything in place that tells the recorder what Python does; close it before the recording ends."""
    sites.forget()
    looks.forget()
    operators.make_subclasses_outside()
    operations.set_rank(rank)
    with contextlib.ExitStack() as stack:
        for part in (symmetric.watched(rank), groups.watched(), operators.looks_of_host()):
            stack.enter_context(part)
        if "triton.runtime.interpreter" in sys.modules:  # and numpy with it
            from pkb.rank.emulate.races import triton_programs

            stack.enter_context(triton_programs.watched())
        return stack.pop_all()


@contextlib.contextmanager
def recorded(shared_fd: int, log_fd: int, *, rank: int, world: int, weak_seed: int | None = None) -> Iterator[None]:
    """Calls made by `recorded_calls` inside are recorded, with a `weak_seed` in weak execution. Raises `ValueError` at the end
    if the recorder's functions in Python are not ours any more."""
    from pkb.rank.emulate.races.untouched import replaced

    recorder.begin(shared_fd, log_fd, rank=rank, world=world, weak_seed=weak_seed)
    try:
        with install(rank):
            yield
    finally:
        recorder.end()
    if name := replaced():
        raise ValueError(f"the candidate has replaced {name} of the recorder")


def recorded_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    """A candidate's function, of which each call is recorded.

    Its arguments are written by the caller before it begins and its results read when it has returned, both in the order of the
    current stream. Neither orders anything between ranks: what a peer still reads after a call must not rely on there being
    a next one.
    """
    numbers = itertools.count()

    def call(*arguments: Any) -> Any:
        number = next(numbers)
        recorder.host(Host.CALL_BEGIN, number)
        _touch(arguments, write=True, what="the caller, who writes the arguments")
        with operators.Operators():
            result = function(*arguments)
        _touch(result, write=False, what="the caller, who reads the results")
        recorder.host(Host.CALL_END, number)
        return result

    return call


def recorded_import() -> contextlib.AbstractContextManager[None]:
    """Operators outside of calls, as a candidate's file has them where it makes its buffers when it is imported."""
    return operators.Operators()


def _touch(tree: Any, *, write: bool, what: str) -> None:
    site = recorder.site("", 0, what)
    with contextlib.suppress(BadTree), operations.operation(site):
        for tensor in tensors_in(tree):
            operations.touch(tensor, write=write, site=site)
