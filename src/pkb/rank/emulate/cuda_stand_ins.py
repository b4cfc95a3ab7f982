"""Harmless stand-ins for the parts of `torch.cuda` that order work and set devices, for ranks without a GPU.

Everything on a CPU is done when the call returns, so streams order nothing and events have always happened. Functions
that tell facts about a GPU say that there is none, with the same words whether or not torch was built for CUDA: a verdict
must not depend on which build is installed.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
import torch.distributed

from pkb.types.failure import Cause, NotOnThisPlatform


class NoCudaDevice(NotOnThisPlatform, AssertionError):
    """torch raises the one or the other, by how it was built."""


class Event:
    """Marks a moment of the host's clock."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        self._timed = enable_timing
        self._at_s: float | None = None
        self.device = torch.device("cpu")
        self.cuda_event = 0
        self.event_id = 0

    def record(self, stream: Any = None) -> None:
        self._at_s = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: "Event") -> float:
        """Milliseconds, as torch has it."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at_s is None or end_event._at_s is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._at_s - self._at_s) * 1e3


class Stream:
    """The order in which the program is written."""

    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        self.device = torch.device("cpu")
        self.priority = priority
        self.stream_id = options.get("stream_id", 0)
        self.cuda_stream = options.get("stream_ptr", 0)
        self._entered: list[Any] = []

    def wait_event(self, event: Any) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def __enter__(self) -> "Stream":
        self._entered.append(_state.stream)
        _state.stream = self
        return self

    def __exit__(self, *_error: object) -> None:
        _state.stream = self._entered.pop()


class _State:
    stream: Any
    device_index: int = 0


_state = _State()


class DeviceGuard:
    """`with torch.cuda.device(k):`"""

    def __init__(self, device: Any) -> None:
        self.idx = _index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx, _state.device_index = _state.device_index, self.idx

    def __exit__(self, *_error: object) -> None:
        _state.device_index = self.prev_idx


def _index_of(device: Any) -> int:
    """The index a candidate means: 1 for 1, "cuda:1" and torch.device("cuda:1"); the current one where none is said."""
    if isinstance(device, int):
        return device if device >= 0 else _state.device_index
    tail = str(device).rpartition(":")[2]
    return int(tail) if tail.isdigit() else _state.device_index


def _set_device(device: Any) -> None:
    _state.device_index = _index_of(device)


def _set_stream(stream: Any) -> None:
    if stream is not None:
        _state.stream = stream


def current_stream() -> Any:
    return _state.stream


def make_current(stream: Any) -> None:
    _state.stream = stream


@contextlib.contextmanager
def _stream(stream: Any) -> Iterator[None]:
    before = _state.stream
    _set_stream(stream)
    try:
        yield
    finally:
        _state.stream = before


def _no_device(initialise: Callable[[], None]) -> Callable[[], None]:
    """Everything that needs a real device, in Python or in C++, initialises CUDA first."""

    def refuse() -> None:
        try:
            initialise()
        except (AssertionError, RuntimeError) as error:
            raise NoCudaDevice(Cause.LACKS_CUDA, str(error)) from error

    return refuse


def install_stand_ins(rank: int) -> None:
    """`current_device()` is the rank, as it is on a node where the harness has set it."""
    default = Stream()
    _state.stream, _state.device_index = default, rank
    cuda = cast(Any, torch.cuda)
    for stand_in, name in ((Event, "Event"), (Stream, "Stream"), (Stream, "ExternalStream"), (DeviceGuard, "device")):
        setattr(cuda, name, stand_in)
    cuda.set_device, cuda.current_device = _set_device, lambda: _state.device_index
    cuda.synchronize = lambda device=None: None
    cuda.current_stream, cuda.default_stream = lambda device=None: _state.stream, lambda device=None: default
    cuda.stream, cuda.set_stream = _stream, _set_stream
    cuda.is_current_stream_capturing = lambda: False
    cuda._lazy_init = _no_device(cuda._lazy_init)
    cuda.nvtx.range_push, cuda.nvtx.range_pop = lambda msg: 0, lambda: 0
    cuda.nvtx.mark, cuda.nvtx.range = lambda msg: None, lambda msg, *args, **options: contextlib.nullcontext()
    _hide_cuda_build()
    # Here and not in a mode: the real one rejects our streams before any mode is asked.
    cast(Any, torch.Tensor).record_stream = lambda self, stream: None


def _hide_cuda_build() -> None:
    """Make a CUDA build of torch answer as the CPU build does; on that one nothing changes."""
    core, distributed = cast(Any, torch._C), cast(Any, torch.distributed.distributed_c10d)
    if hasattr(core, "_cuda_getDeviceCount"):  # by its absence torch knows a CPU build
        del core._cuda_getDeviceCount
    core._has_cuda = core._has_cudnn = False
    cast(Any, torch.version).cuda = None
    distributed._NCCL_AVAILABLE = False
    if hasattr(torch, "accelerator"):
        cast(Any, torch.accelerator).current_accelerator = lambda check_available=False: None
