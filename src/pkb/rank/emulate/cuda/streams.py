"""Streams and events of the emulated GPU behind torch's interface.

Kernels on a side stream run late: when it is joined, or when an operator of torch is called inside it, since those run at
once on a CPU. So an operator of torch on a side stream is early where a GPU's may be late; kernels are not.
"""

import functools
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode

import pkb.kit.streams
from pkb.rank.emulate import cuda_stand_ins
from pkb.rank.emulate.cuda.device import gpu
from pkb.rank.emulate.cuda.graphs import refuse_in_capture
from pkb.rank.symmetric.handle import Handle


class EmulatedEvent(cuda_stand_ins.Event):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cuda_event = gpu().library.emu_event_create()
        self.event_id = self.cuda_event

    def record(self, stream: Any = None) -> None:
        super().record(stream)
        gpu().library.emu_event_record(self.cuda_event, _number(stream))

    def wait(self, stream: Any = None) -> None:
        gpu().library.emu_event_wait(self.cuda_event, _number(stream))

    def synchronize(self) -> None:
        gpu().library.emu_event_synchronize(self.cuda_event)
        gpu().check()

    def query(self) -> bool:
        return bool(gpu().library.emu_event_done(self.cuda_event))


class EmulatedStream(cuda_stand_ins.Stream):
    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        super().__init__(device, priority, **options)
        if "stream_ptr" not in options:
            self.cuda_stream = gpu().library.emu_stream_create(0)
        self._kept: list[Any] = []
        self._modes: list[_InsideStream] = []

    def keep(self, tensors: Any) -> None:
        """Memory of a stream is free again in its order; here it is held until the stream is idle."""
        if self.cuda_stream:
            if self._kept and gpu().library.emu_stream_empty(self.cuda_stream):
                self._kept.clear()
            self._kept.append(tensors)

    def wait_event(self, event: Any) -> None:
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        event = EmulatedEvent()
        event.record(stream)
        event.wait(self)

    def record_event(self, event: Any = None) -> Any:
        event = EmulatedEvent() if event is None else event
        event.record(self)
        return event

    def synchronize(self) -> None:
        gpu().library.emu_stream_synchronize(self.cuda_stream)
        gpu().check()

    def query(self) -> bool:
        return bool(gpu().library.emu_stream_idle(self.cuda_stream))

    def __enter__(self) -> "EmulatedStream":
        super().__enter__()
        gpu().library.emu_set_current_stream(self.cuda_stream)
        if self.cuda_stream:
            mode = _InsideStream(self)
            mode.__enter__()
            self._modes.append(mode)
        return self

    def __exit__(self, *error: object) -> None:
        if self.cuda_stream:
            self._modes.pop().__exit__(None, None, None)
        super().__exit__(*error)
        gpu().library.emu_set_current_stream(_number(None))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EmulatedStream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)


class _InsideStream(TorchFunctionMode):
    """While a side stream is current: an operator comes after the kernels before it, and its results are held."""

    def __init__(self, stream: EmulatedStream) -> None:
        super().__init__()
        self._stream = stream

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _LOOKS:
            gpu().library.emu_stream_drain(self._stream.cuda_stream)
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self._stream.keep(result)
        return result


_LOOKS = {
    torch.Tensor.data_ptr, torch.Tensor.numel, torch.Tensor.size, torch.Tensor.stride, torch.Tensor.is_contiguous,
    torch.Tensor.dim, torch.Tensor.element_size, torch.Tensor.view,
    torch.empty, torch.empty_like,
    *(vars(torch._C.TensorBase)[name].__get__ for name in ("shape", "dtype", "device", "is_cuda")),
}  # fmt: skip
"""What touches no memory that a kernel may have written."""


def _number(stream: Any) -> int:
    stream = cuda_stand_ins.current_stream() if stream is None else stream
    return int(stream.cuda_stream)


class _StreamContext:
    """`with torch.cuda.stream(s):`"""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*error)


def _set_stream(stream: Any) -> None:
    if stream is not None:
        cuda_stand_ins.make_current(stream)
        gpu().library.emu_set_current_stream(stream.cuda_stream)


def _after_kernels(method: Any) -> Any:
    """A barrier or a signal of symmetric memory comes behind the kernels of the current stream."""

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        refuse_in_capture(f"{method.__name__} of symmetric memory")
        if number := _number(None):
            gpu().library.emu_stream_drain(number)
        return method(self, *arguments, **options)

    return call


def install_streams() -> None:
    for name in ("barrier", "put_signal", "wait_signal"):
        setattr(Handle, name, _after_kernels(getattr(Handle, name)))
    cuda = cast(Any, torch.cuda)
    default = EmulatedStream(stream_ptr=0)
    cuda_stand_ins.make_current(default)
    cuda.Event, cuda.Stream, cuda.ExternalStream = EmulatedEvent, EmulatedStream, _external
    cuda.stream, cuda.StreamContext, cuda.set_stream = _StreamContext, _StreamContext, _set_stream
    cuda.default_stream = lambda device=None: default
    cast(Any, torch.Tensor).record_stream = lambda self, stream: stream.keep(self)
    cast(Any, pkb.kit.streams).current = lambda device: (0, _number(None))


def _external(stream_ptr: int, device: Any = None, **options: Any) -> EmulatedStream:
    return EmulatedStream(device, stream_ptr=stream_ptr, **options)
