"""Passes of a baseline that torch.compile makes one kernel of, on a GPU; on a CPU they run as they are written."""

import re
from collections.abc import Callable, Sequence
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

import torch
from torch.utils._pytree import tree_map_only

ON = ("cuda",)
"""Devices whose tensors are worth a compiler."""
COMPILED_IN: set[str] = set()
"""Names of the modules that have such a pass."""
R = TypeVar("R")
_OF_THE_HOST = re.compile(r"\b(gcc|g\+\+|clang|cc)\b|compiler|Python\.h", re.IGNORECASE)
"""What an error says where it is the compiler of the host's code that is missing, or lacks something."""


class NotCompiled(RuntimeError):
    """The compiler failed: the machine lacks something, and neither the problem nor a candidate is at fault."""


def compiled(function: Callable[..., R]) -> Callable[..., R]:
    """Once for each set of shapes, when it is first called with them, and from a copy of the function: torch.compile gives a
    function that has seen two shapes kernels for any shape, which are not those that were measured."""
    made: dict[tuple[torch.Size, ...], Callable[..., R]] = {}
    COMPILED_IN.add(function.__module__)

    @wraps(function)
    def call(*arguments: Any) -> R:
        if not _worth_it(arguments):
            return function(*arguments)
        shapes = tuple(one.shape for one in arguments if isinstance(one, torch.Tensor))
        if shapes not in made:
            # In one graph: otherwise what cannot be compiled, or not so often, would run as it is written, and nobody be told.
            made[shapes] = torch.compile(_renamed(function, len(made)), fullgraph=True)
        return _run(made[shapes], arguments)

    return call


def compiled_for_any_length(*places: int) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """As `compiled`, but once for all first dimensions of the tensors at these places among the arguments: where every call has
    another number of rows, every call would be compiled anew."""

    def of(function: Callable[..., R]) -> Callable[..., R]:
        COMPILED_IN.add(function.__module__)
        made: list[Callable[..., R]] = []

        @wraps(function)
        def call(*arguments: Any) -> R:
            if not _worth_it(arguments):
                return function(*arguments)
            if not made:
                made.append(torch.compile(function, fullgraph=True))
            # Marks are attributes, which results inherit: neither they nor what the caller gave may have any.
            given = [one.detach() if place in places else one for place, one in enumerate(arguments)]
            for place in places:
                torch._dynamo.maybe_mark_dynamic(given[place], 0)
            return tree_map_only(torch.Tensor, torch.Tensor.detach, _run(made[0], given))

        return call

    return of


def writes_fp8(device: torch.device) -> bool:
    """Whether a compiled pass may have results in FP8: Triton stores none on GPUs before Ada."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 9)


def _worth_it(arguments: tuple[Any, ...]) -> bool:
    return next(one for one in arguments if isinstance(one, torch.Tensor)).device.type in ON


def _run(function: Callable[..., R], arguments: Sequence[Any]) -> R:
    try:
        return function(*arguments)
    except _compiler_errors() as error:
        first = getattr(error, "inner_exception", error)  # of the backend, where that has failed
        said = f"{type(first).__name__}: {first}".splitlines()[0][:200]
        lacks = "install gcc and Python's headers (`pkb doctor`), or " if _OF_THE_HOST.search(str(first)) else ""
        raise NotCompiled(
            f"torch.compile, which the judge makes this problem's baseline with, failed on this machine: {said}; "
            f"{lacks}time against the reference (--against reference)"
        ) from error


def _renamed(function: Callable[..., R], number: int) -> Callable[..., R]:
    """What torch.compile remembers of a function, it remembers by its code's file, line and name."""
    assert isinstance(function, FunctionType)
    code = function.__code__.replace(co_name=f"{function.__name__}_{number}")
    made = FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _compiler_errors() -> tuple[type[Exception], ...]:
    from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

    return FailOnRecompileLimitHit, TorchDynamoException
