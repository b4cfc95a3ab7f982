"""Programs of Triton in its interpreter: loads, stores and atomics of each, with the line of Triton that does them.

A program is one thread here, as it is for Triton's own sanitizer: what its warps owe each other is not looked at. A launch is
an operation of the current stream; its programs run one after another but are unordered, as on a GPU. `tl.load` and
`tl.store` are weak, volatile loads relaxed at system scope, atomics what their `sem` and `scope` say (by default acquire and
release, for this GPU only).
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch.utils._python_dispatch import _disable_current_modes

from pkb.rank.emulate import recorder
from pkb.rank.emulate.races import operations, sites
from pkb.rank.emulate.recorder import AccessWay, Order, Scope

_ORDERS = {
    "RELAXED": Order.RELAXED,
    "ACQUIRE": Order.ACQUIRE,
    "RELEASE": Order.RELEASE,
    "ACQUIRE_RELEASE": Order.ACQ_REL,
}
_SCOPES = {"CTA": Scope.CTA, "GPU": Scope.GPU, "SYSTEM": Scope.SYS}


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Wraps the memory operations of the interpreter, which has been loaded."""
    interpreter: Any = sys.modules["triton.runtime.interpreter"]
    wrappers = {
        (interpreter.InterpreterBuilder, "create_masked_load"): _load,
        (interpreter.InterpreterBuilder, "create_masked_store"): _store,
        (interpreter.InterpreterBuilder, "create_atomic_cas"): _cas,
        (interpreter.InterpreterBuilder, "create_atomic_rmw"): _rmw,
        (interpreter.InterpreterBuilder, "set_grid_idx"): _program,
        (interpreter.GridExecutor, "__call__"): _launch,
    }
    before = {place: getattr(*place) for place in wrappers}
    for (owner, name), wrap in wrappers.items():
        setattr(owner, name, wrap(before[owner, name]))
    try:
        yield
    finally:
        for (owner, name), method in before.items():
            setattr(owner, name, method)


def _launch(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def launch(self: Any, *arguments: Any, **options: Any) -> Any:
        site = sites.of_caller(f"triton {getattr(self.fn, '__name__', 'kernel')}")
        # Not the interpreter's own handling of arguments: it sets tensors to themselves.
        with operations.operation(site), _disable_current_modes():
            return call(self, *arguments, **options)

    return launch


def _program(set_grid_idx: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(set_grid_idx)
    def begin(self: Any, x: int, y: int, z: int) -> Any:
        set_grid_idx(self, x, y, z)
        width, height, _ = self.grid_dim
        recorder.thread(0, x + width * (y + height * z), 0)

    return begin


def _lanes(pointers: Any, mask: Any) -> "np.ndarray[Any, Any]":
    """Addresses of the lanes that take part, sorted, none twice."""
    addresses = np.asarray(pointers.data, dtype=np.uint64)
    taken = np.broadcast_to(np.asarray(mask.data, dtype=bool), addresses.shape) if mask is not None else True
    return np.unique(addresses[taken] if mask is not None else addresses)


def _bytes_of(pointers: Any) -> int:
    return max(1, int(pointers.get_element_ty().primitive_bitwidth) // 8)


def _touch(pointers: Any, mask: Any, *, write: bool, site: int) -> None:
    lanes, size = _lanes(pointers, mask), _bytes_of(pointers)
    if not len(lanes):
        return
    gaps = np.flatnonzero(np.diff(lanes) != size) + 1
    for run in np.split(lanes, gaps):
        recorder.access(int(run[0]), int(run[-1] - run[0]) + size, write=write, site=site)


def _load(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def recorded(self: Any, ptrs: Any, mask: Any, other: Any, cache: Any, eviction: Any, is_volatile: Any) -> Any:
        if not is_volatile:
            _touch(ptrs, mask, write=False, site=sites.of_caller("tl.load"))
            return load(self, ptrs, mask, other, cache, eviction, is_volatile)
        site = sites.of_caller("tl.load(volatile=True)")

        def do() -> Any:
            return load(self, ptrs, mask, other, cache, eviction, is_volatile)

        return _strongly(do, ptrs, mask, way=AccessWay.READ, order=Order.RELAXED, scope=Scope.SYS, site=site)

    return recorded


def _store(store: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(store)
    def recorded(self: Any, ptrs: Any, value: Any, mask: Any, cache: Any, eviction: Any) -> Any:
        _touch(ptrs, mask, write=True, site=sites.of_caller("tl.store"))
        return store(self, ptrs, value, mask, cache, eviction)

    return recorded


def _cas(cas: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(cas)
    def recorded(self: Any, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        return _atomic("cas", lambda: cas(self, ptr, cmp, val, sem, scope), ptr, None, sem, scope)

    return recorded


def _rmw(rmw: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(rmw)
    def recorded(self: Any, op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        name = str(getattr(op, "name", op)).lower()
        return _atomic(name, lambda: rmw(self, op, ptr, val, mask, sem, scope), ptr, mask, sem, scope)

    return recorded


def _atomic(name: str, do: Callable[[], Any], pointers: Any, mask: Any, sem: Any, scope: Any) -> Any:
    order, wide = getattr(sem, "name", str(sem)), getattr(scope, "name", str(scope))
    site = sites.of_caller(f"tl.atomic_{name} {order.lower()} {wide.lower()}")
    return _strongly(
        do,
        pointers,
        mask,
        way=AccessWay.UPDATE,
        order=_ORDERS.get(order, Order.ACQ_REL),
        scope=_SCOPES.get(wide, Scope.GPU),
        site=site,
    )


def _strongly(
    do: Callable[[], Any], pointers: Any, mask: Any, *, way: AccessWay, order: Order, scope: Scope, site: int
) -> Any:
    size = _bytes_of(pointers)
    recorder.lock()
    try:
        result = do()
        for address in _lanes(pointers, mask):
            recorder.strong(int(address), size, way=way, order=order, scope=scope, site=site)
    finally:
        recorder.unlock()
    return result
