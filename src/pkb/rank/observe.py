"""What a batch of calls did to move data, observed while it ran.

Library collectives are counted by the process groups' own sequence numbers, on every group that exists, and by the profiler
where a batch is profiled; symmetric memory by the calls that hand out peers' memory. Text of the candidate plays no part.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

LIBRARY_MARKS = ("c10d::", "nccl:", "gloo:", "ncclDevKernel", "ncclKernel", "record_param_comms", "nvshmem")
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
        with _profiler(profile) as profiler:
            yield seen
        after = _sequence_numbers()
        seen.collectives = sum(after.values()) - sum(before.get(name, 0) for name in after)
        seen.collectives += self._activity.library_reductions - reductions
        # Peers' pointers may be fetched once and used in every call, so what counts is that they were ever handed out.
        seen.symmetric = int(self._activity.peer_accesses)
        if profiler is not None:
            seen.profiled = True
            for event in profiler.events():
                seen.events[event.name] += 1


def _sequence_numbers() -> dict[str, int]:
    numbers: dict[str, int] = {}
    for group in list(dist.distributed_c10d._world.pg_names):
        with contextlib.suppress(RuntimeError, AttributeError):
            numbers[dist.distributed_c10d._world.pg_names[group]] = int(group._get_sequence_number_for_group())
    return numbers


@contextlib.contextmanager
def _profiler(wanted: bool) -> Iterator[Any]:
    if not wanted:
        yield None
        return
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        yield profiler
