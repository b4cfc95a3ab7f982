"""Ways of moving data that torch keeps no list of: groups made by their constructors, CUDA IPC, NCCL's windows,
NVSHMEM's heap.

Seen inside the candidate's process, hence a description of honest candidates and no proof against others.
"""

import contextlib
import ctypes
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pkb.rank.elf import DYNAMIC_SYMBOLS, UNREADABLE, sections_of
from pkb.types.protocol.limits import is_host_collective

PEER_MEMORY_CALLS = ("IpcOpenMemHandle", "ncclCommWindowRegister", "nvshmem_malloc")
"""Parts of the names of functions that make memory of other ranks reachable: of the CUDA runtime and the driver, of NCCL and
NVSHMEM for kernels that use their device APIs. What else sets them up moves nothing; collectives are seen by their kernels
and by who calls them."""
GROUP_CLASSES = ("ProcessGroup", "ProcessGroupGloo", "ProcessGroupNCCL")
Started = tuple[Any, int]
"""A group, and its operations so far."""


class UnlistedGroups:
    """Process groups made since `watch` that are not torch.distributed's own."""

    def __init__(self) -> None:
        self._new: list[Any] = []
        self._known: list[weakref.ref[Any]] = []

    def watch(self) -> None:
        for name in GROUP_CLASSES:
            if found := getattr(torch._C._distributed_c10d, name, None):
                found.__init__ = self._noting(found.__init__)

    def _noting(self, make: Callable[..., None]) -> Callable[..., None]:
        def noting(group: Any, *arguments: Any, **options: Any) -> None:
            make(group, *arguments, **options)
            self._new.append(group)  # held until it has been counted, should it be used and dropped in one call

        return noting

    def operations(self) -> dict[int, Started]:
        """How many operations have been started on each group. The groups live as long as this answer, so that ids stay
        unique."""
        groups = [group for reference in self._known if (group := reference()) is not None] + self._new
        self._new, self._known = [], [weakref.ref(group) for group in groups]
        listed = dist.distributed_c10d._world.pg_names
        return {id(group): (group, _sequence_number(group)) for group in groups if group not in listed}

    def since(self, before: dict[int, Started]) -> int:
        """How many operations have been started on all of them since then."""
        return sum(number - before.get(key, (None, 0))[1] for key, (_, number) in self.operations().items())


def _sequence_number(group: Any) -> int:
    with contextlib.suppress(RuntimeError):  # nobody has used it
        return int(group._get_sequence_number_for_group())
    return 0


class _Told:
    """A function that ctypes has found, and that tells of its calls."""

    def __init__(self, function: Any, on_call: Callable[[], None], on_address: Callable[[], None]) -> None:
        vars(self).update(_function=function, _on_call=on_call, _on_address=on_address)

    def __call__(self, *arguments: Any) -> Any:
        self._on_call()
        return self._function(*arguments)

    @property
    def _as_parameter_(self) -> Any:
        """What `ctypes.cast` and foreign functions take it for: its address, whose calls nobody counts."""
        self._on_address()
        return self._function

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_function"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._function, name, value)  # argtypes, restype


def watch_peer_memory(
    on_open: Callable[[], None], on_collective: Callable[[], None], on_address: Callable[[str], None]
) -> None:
    """Tells of memory of another process that is opened through torch's storages or through ctypes, and of collectives of
    NCCL and NVSHMEM that are called through ctypes, or whose address is taken there."""
    storage: Any = torch.UntypedStorage
    open_storage, find = storage._new_shared_cuda, ctypes.CDLL.__getitem__

    def opened(_: type, *arguments: Any, **options: Any) -> Any:
        on_open()
        return open_storage(*arguments, **options)

    def found(library: ctypes.CDLL, name: Any) -> Any:
        if any(call in str(name) for call in PEER_MEMORY_CALLS):
            on_open()
        function = find(library, name)
        if not is_host_collective(str(name)):
            return function
        return _Told(function, on_collective, lambda: on_address(str(name)))

    storage._new_shared_cuda = classmethod(opened)
    ctypes.CDLL.__getitem__ = found  # type: ignore[method-assign]


def libraries_that_open_peers(folders: Sequence[Path]) -> list[Path]:
    """Libraries from these folders that this process has loaded and that import one of the calls."""
    calls = [call.encode() for call in PEER_MEMORY_CALLS]
    return [path for path in loaded(folders) if any(_imports(path, call) for call in calls)]


def loaded(folders: Sequence[Path]) -> Iterator[Path]:
    """The libraries from these folders that this process has loaded."""
    seen = set()
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and "x" in fields[1] and fields[5] not in seen:
            seen.add(fields[5])
            path = Path(fields[5])
            if any(path.is_relative_to(folder) for folder in folders):
                yield path


def _imports(path: Path, name: bytes) -> bool:
    """Whether it stands among the dynamic symbols of a library; the runtime's own code, linked statically, holds it anyway."""
    with contextlib.suppress(*UNREADABLE):
        data = path.read_bytes()
        sections = sections_of(data)
        for table in sections:
            if table.kind == DYNAMIC_SYMBOLS:
                names = sections[table.link]
                return data.find(name, names.start, names.start + names.length) >= 0
    return False
