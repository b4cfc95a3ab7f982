"""What a batch of calls did to move data, observed while it ran.

Library calls are counted by the process groups' own sequence numbers, on every group that exists (with gloo also for
point-to-point transfers), in one call of each case by the names of the kernels on a GPU and by what the candidate's own
libraries import; symmetric memory and CUDA IPC by the calls that hand out peers' memory. The text of the candidate plays no
part here, and nothing is put between it and torch's operators: a dispatch mode, say, makes honest code fail that builds
tensor subclasses.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pkb.rank.host_calls import host_collectives
from pkb.rank.profile import device_events
from pkb.rank.unlisted import UnlistedGroups, libraries_that_open_peers, loaded, watch_peer_memory
from pkb.types.protocol.limits import MAX_NAME, clean, is_library
from pkb.types.protocol.replies import Observed

_is_available = torch.cuda.is_available  # the real one, whatever a candidate is told later
COPY_MARKS = ("Memcpy DtoD", "Memcpy PtoP")


class Seen:
    def __init__(self) -> None:
        self.collectives = 0
        self.symmetric = 0
        self.events: Counter[str] = Counter()
        self.imports: tuple[str, ...] = ()
        self.profiled = False

    def summary(self) -> Observed:
        library = {clean(words, MAX_NAME): 1 for words in self.imports}
        library |= {clean(name, MAX_NAME): n for name, n in self.events.items() if is_library(name)}
        copies = sum(n for name, n in self.events.items() if any(mark in name for mark in COPY_MARKS))
        return Observed(
            collectives=self.collectives,
            symmetric=self.symmetric,
            library_events=dict(list(library.items())[:8]),
            peer_copies=copies,
            profiled=self.profiled,
        )


class Observer:
    def __init__(self, activity: Any, own_folders: Sequence[Path] = ()) -> None:
        self._activity, self._own_folders = activity, own_folders
        self._unlisted = UnlistedGroups()
        self._unlisted.watch()
        self._addresses: set[str] = set()
        watch_peer_memory(self._peer_memory, self._collective, self._addresses.add)

    def _peer_memory(self) -> None:
        self._activity.peer_accesses += 1

    def _collective(self) -> None:
        self._activity.library_reductions += 1

    @contextlib.contextmanager
    def watching(self, *, profile: bool) -> Iterator[Seen]:
        seen = Seen()
        before, unlisted = _sequence_numbers(), self._unlisted.operations()
        reductions = self._activity.library_reductions
        with device_events(wanted=profile) as events:
            seen.profiled = profile and _is_available()
            yield seen
        seen.events.update(str(event.name) for event in events)
        after = _sequence_numbers()
        seen.collectives = sum(after.values()) - sum(before.get(name, 0) for name in after)
        seen.collectives += self._unlisted.since(unlisted)
        seen.collectives += self._activity.library_reductions - reductions
        # Not in batches that are timed: it takes a millisecond.
        if profile:
            taken = (f"its Python takes the address of {name}" for name in sorted(self._addresses))
            seen.imports = (*host_collectives(loaded(self._own_folders)).values(), *taken)
            if libraries_that_open_peers(self._own_folders):
                self._peer_memory()
        # Peers' pointers may be fetched once and used in every call, so what counts is that they were ever handed out.
        seen.symmetric = int(self._activity.peer_accesses)


def _sequence_numbers() -> dict[str, int]:
    numbers: dict[str, int] = {}
    for group in list(dist.distributed_c10d._world.pg_names):
        with contextlib.suppress(RuntimeError):  # a group that this rank is not in
            number = group._get_sequence_number_for_group()  # type: ignore[attr-defined]
            numbers[dist.distributed_c10d._world.pg_names[group]] = int(number)
    return numbers
