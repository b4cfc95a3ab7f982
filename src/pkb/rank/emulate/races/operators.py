"""Operators of torch: what each reads and writes, by its schema, as an operation of the current stream.

A dispatch mode sees every operator, also those that C++ calls. It is entered only while calls are recorded: it costs tens of
microseconds an operator, and code that builds tensor subclasses needs help inside one.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from pkb.rank.emulate import aliases, recorder
from pkb.rank.emulate.races import groups, looks, operations, sites
from pkb.rank.symmetric import ops as symmetric_ops

_TOUCHES_NOTHING = {
    "set_", "resize_", "resize_as_", "record_stream", "is_pinned", "_has_same_storage_numel", "lift_fresh", "transpose_", "t_",
    "squeeze_", "unsqueeze_", "as_strided_", "swapaxes_", "swapdims_", "detach_", "requires_grad_",
}  # fmt: skip
_INDEXED = {
    "index", "_unsafe_index", "index_select", "gather", "embedding", "_embedding_bag", "take", "index_put_",
    "_index_put_impl_", "_unsafe_index_put", "put_", "index_add_", "index_copy_", "index_fill_", "index_reduce_", "scatter_",
    "scatter_add_", "scatter_reduce_", "masked_scatter_",
}  # fmt: skip
"""Operators that touch elements of their first argument by values of another: which ones is not looked up, and nothing is held
against them there."""
_HOST_WAITS = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "equal",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
}
"""Operators whose result the host looks at, or whose shape depends on values."""
Plan = tuple[tuple[int | str, bool], ...]
"""Arguments by position or name, and whether each is written."""


class Operators(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Asked by torch. To say yes would import its compiler, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2]
        if func.namespace == "symm_mem" and name in symmetric_ops.KERNELS:
            with self:  # its parts are recorded, not the whole
                return symmetric_ops.KERNELS[name](*args, **kwargs)
        if func.namespace == "_c10d_functional" and name != "wait_tensor":
            return groups.functional(func, name, args, kwargs)
        used = [
            (tensor, written)
            for place, written in _plan(func)
            for tensor in _tensors(args[place] if isinstance(place, int) and place < len(args) else kwargs.get(place))
        ]
        if not used and not func._schema.returns:
            return func(*args, **kwargs)
        site = sites.of_caller(f"torch.{name}")
        given = list(_tensors((args, tuple(kwargs.values()))))
        before = {tensor.untyped_storage().data_ptr() for tensor in given}
        writes = [tensor for tensor, written in used if written]
        flags = [(tensor, written) for tensor, written in used if operations.may_be_flags(tensor)]
        if flags:
            used = [(tensor, written) for tensor, written in used if not operations.may_be_flags(tensor)]
            with operations.operation(site), operations.strongly():
                result = func(*args, **kwargs)
                for tensor, written in flags:
                    operations.signal(tensor, write=written, site=site)
        else:
            result = func(*args, **kwargs)
        makes = func.namespace == "aten" and name not in _TOUCHES_NOTHING
        made = [tensor for tensor in _tensors(result) if _is_new(tensor, before)] if makes else []
        for tensor in made:
            operations.fresh(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
        filled = [] if name.startswith(("empty", "new_empty")) else made
        if used or filled:
            with operations.operation(site):
                for tensor, written in used:
                    operations.touch(tensor, write=written, site=site)
                for tensor in filled:
                    operations.touch(tensor, write=True, site=site)
        for tensor in writes:
            looks.written(tensor)
        looks.followed(given, [*made, *writes], host=name in _HOST_WAITS)
        if name in _HOST_WAITS:
            operations.host_waits()
        return result


_made_outside: list[bool] = []


def make_subclasses_outside() -> None:
    """`torch.Tensor.__new__` of a subclass fails inside a dispatch mode: there, it is called outside. Put in place once, for
    good: a method that a class has had and has no more is not what it was to Python."""
    if _made_outside:
        return
    _made_outside.append(True)
    make: Any = torch._C.TensorBase.__new__

    # A class among the arguments and no name: torch's compiler, imported later, holds its own signature against this one.
    def made(*arguments: Any, **options: Any) -> Any:
        if arguments[0] is torch.Tensor or not torch._C._len_torch_dispatch_stack():
            return make(*arguments, **options)
        with _disable_current_modes():
            return make(*arguments, **options)

    cast(Any, torch.Tensor).__new__ = staticmethod(made)


def _is_new(tensor: torch.Tensor, before: set[int]) -> bool:
    return tensor.device.type == "cpu" and tensor.untyped_storage().data_ptr() not in before


@cache
def _plan(func: Any) -> Plan:
    schema, name = func._schema, func._schema.name.partition("::")[2]
    if name in _TOUCHES_NOTHING or name.endswith("_like") or name.startswith("new_"):
        return ()
    if func.namespace == "c10d":
        return _collective(name)
    plan: list[tuple[int | str, bool]] = []
    for position, argument in enumerate(schema.arguments):
        if "Tensor" not in str(argument.type) or (position == 0 and name in _INDEXED):
            continue
        alias = argument.alias_info
        if alias is None or alias.is_write:  # an alias that is not written is a view's
            plan.append((argument.name if argument.kwarg_only else position, alias is not None))
    return tuple(plan)


def _collective(name: str) -> Plan:
    """Schemas of collectives do not say what is written."""
    if name == "barrier":
        return ()
    if name == "send":
        return ((0, False),)
    if name in ("allreduce_", "broadcast_", "reduce_", "allreduce_coalesced_", "recv_", "recv_any_source_"):
        return ((0, True),)
    return ((0, True), (1, False))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.layout == torch.strided and value.device.type == "cpu":
            yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


@contextlib.contextmanager
def looks_of_host() -> Iterator[None]:
    """Ways to look at a tensor that no operator stands for: the host reads it after it has waited for the stream."""
    tensor_class = cast(Any, torch.Tensor)
    before = {name: tensor_class.__dict__.get(name, getattr(tensor_class, name)) for name in ("cpu", "tolist", "numpy")}
    for name, method in before.items():
        setattr(tensor_class, name, _looking(name, method))
    cuda, module = cast(Any, torch.cuda), cast(Any, torch)
    synchronize, makers = cuda.synchronize, {name: getattr(module, name) for name in ("tensor", "as_tensor")}
    cuda.synchronize = _joining(synchronize)
    for name, make in makers.items():
        setattr(module, name, _copying(make))
    aliases.ON_COPY.append(operations.host_waits)
    try:
        yield
    finally:
        aliases.ON_COPY.remove(operations.host_waits)
        for name, make in makers.items():
            setattr(module, name, make)
        for name, method in before.items():
            if hasattr(torch._C.TensorBase, name):
                delattr(tensor_class, name)
            else:
                setattr(tensor_class, name, method)
        cuda.synchronize = synchronize


def _looking(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def look(self: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        if type(self) is torch.Tensor:
            site = sites.of_caller(f"torch.{name}")
            with operations.operation(site):
                operations.touch(self, write=False, site=site)
            looks.followed([self], [], host=True)
            operations.host_waits()
        return method(self, *arguments, **options)

    return look


def _copying(make: Callable[..., Any]) -> Callable[..., Any]:
    """What Python holds goes to a device by a copy that the host waits for, with all that its stream did before."""

    @functools.wraps(make)
    def copied(*arguments: Any, **options: Any) -> Any:
        made = make(*arguments, **options)
        if options.get("device") not in (None, "cpu"):
            operations.host_waits()
        return made

    return copied


def _joining(synchronize: Callable[..., Any]) -> Callable[..., Any]:
    def synchronized(device: Any = None) -> None:
        synchronize(device)
        operations.host_waits(recorder.ALL_STREAMS)

    return synchronized
