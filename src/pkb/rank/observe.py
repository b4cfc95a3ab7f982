"""What a batch of calls did to move data, observed while it ran.

Library collectives are counted by the process groups' own sequence numbers, on every group that exists, and in one call of
each case by the names of operators and kernels; symmetric memory by the calls that hand out peers' memory. The text of the
candidate plays no part.
"""

import contextlib
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

LIBRARY_MARKS = ("c10d.", "c10d_functional.", "symm_mem.", "nccl", "nvshmem")
COPY_MARKS = ("Memcpy DtoD", "Memcpy PtoP")


class Seen:
    def __init__(self) -> None:
        self.collectives = 0
        self.symmetric = 0
        self.events: Counter[str] = Counter()
        self.profiled = False

    def summary(self) -> dict[str, Any]:
        library = {name: n for name, n in self.events.items() if any(mark in name for mark in LIBRARY_MARKS)}
        copies = sum(n for name, n in self.events.items() if any(mark in name for mark in COPY_MARKS))
        return {
            "collectives": self.collectives,
            "symmetric": self.symmetric,
            "library_events": dict(list(library.items())[:8]),
            "peer_copies": copies,
            "profiled": self.profiled,
        }


class Observer:
    def __init__(self, activity: Any) -> None:
        self._activity = activity

    @contextlib.contextmanager
    def watching(self, *, profile: bool) -> Iterator[Seen]:
        seen = Seen()
        before = _sequence_numbers()
        reductions = self._activity.library_reductions
        with contextlib.ExitStack() as stack:
            if profile:
                seen.profiled = True
                stack.enter_context(_OperatorNames(seen.events))
                if torch.cuda.is_available():
                    stack.enter_context(_kernel_names(seen.events))
            yield seen
        after = _sequence_numbers()
        seen.collectives = sum(after.values()) - sum(before.get(name, 0) for name in after)
        seen.collectives += self._activity.library_reductions - reductions
        # Peers' pointers may be fetched once and used in every call, so what counts is that they were ever handed out.
        seen.symmetric = int(self._activity.peer_accesses())


def _sequence_numbers() -> dict[str, int]:
    numbers: dict[str, int] = {}
    for group in list(dist.distributed_c10d._world.pg_names):
        with contextlib.suppress(RuntimeError):  # a group that this rank is not in
            number = group._get_sequence_number_for_group()  # type: ignore[attr-defined]
            numbers[dist.distributed_c10d._world.pg_names[group]] = int(number)
    return numbers


class _OperatorNames(TorchDispatchMode):
    """Counts the operators that pass torch's dispatcher: collectives and point-to-point transfers are among them."""

    def __init__(self, names: "Counter[str]") -> None:
        super().__init__()
        self._names = names

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._names[str(function)] += 1
        return function(*args, **(kwargs or {}))


def rehearse() -> None:
    """Pay once, before ranks are forked, for what torch imports when a dispatch mode is first used."""
    with _OperatorNames(Counter()):
        torch.zeros(1).add_(1)


@contextlib.contextmanager
def _kernel_names(names: "Counter[str]") -> Iterator[None]:
    """Names of the kernels and copies on the device, by the profiler: a library called behind torch's back shows here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about cycles of the profiler, which nobody here uses
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            yield
    for event in profiler.events():
        names[event.name] += 1
