"""CUDA graphs on the emulated GPU: launches, copies and fills of one stream are kept while it captures, and put on a stream
again by every replay, with the arguments that they were given.

An operator of torch runs at once here and would not be in the graph, so all are refused by name but those that touch no memory.
"""

import ctypes
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pkb.rank.emulate import cuda_stand_ins
from pkb.rank.emulate.cuda.device import NotEmulatedHere, gpu

_ALLOCATES = ("empty", "new_empty", "_reshape_alias", "lift_fresh", "detach", "alias")


def capturing() -> bool:
    return bool(gpu().library.emu_capturing(ctypes.c_uint64(cuda_stand_ins.current_stream().cuda_stream)))


def refuse_in_capture(name: str) -> None:
    if capturing():
        raise NotEmulatedHere(f"{name} in a CUDA graph")


class _Capturing(TorchDispatchMode):
    """Operators while a stream captures. What they allocate is the graph's."""

    def __init__(self, held: list[Any]) -> None:
        super().__init__()
        self._held = held

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to say yes would import torch's compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        if not func.is_view and not name.startswith(_ALLOCATES):
            raise NotEmulatedHere(f"torch.{name} in a CUDA graph")
        result = func(*args, **(kwargs or {}))
        self._held.append(result)
        return result


class CUDAGraph:
    def __init__(self, keep_graph: bool = False) -> None:
        self._graph: int | None = None
        self._held: list[Any] = []
        """What launches of the graph point to."""
        self._stream: Any = None
        self._mode: _Capturing | None = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        self._stream = cuda_stand_ins.current_stream()
        if not gpu().library.emu_capture_begin(ctypes.c_uint64(self._stream.cuda_stream)):
            raise RuntimeError("CUDA graphs must be captured on a stream that is not the default stream, one at a time")
        self._graph, self._held = None, []
        self._stream.keep = self._held.append
        self._mode = _Capturing(self._held)
        self._mode.__enter__()

    def capture_end(self) -> None:
        if self._mode is None:
            raise RuntimeError("no capture has begun")
        self._mode.__exit__(None, None, None)
        self._mode = None
        del self._stream.keep
        self._graph = gpu().library.emu_capture_end(ctypes.c_uint64(self._stream.cuda_stream))
        gpu().check()

    def instantiate(self) -> None:
        pass

    def replay(self) -> None:
        if self._graph is None:
            raise RuntimeError("this CUDA graph has not been captured")
        stream = cuda_stand_ins.current_stream()
        stream.keep(self._held)
        gpu().library.emu_graph_launch(ctypes.c_void_p(self._graph), ctypes.c_uint64(stream.cuda_stream))
        gpu().check()

    def reset(self) -> None:
        self._graph = None

    def pool(self) -> tuple[int, int]:
        return (0, 1)


class graph:
    """`with torch.cuda.graph(g):`"""

    def __init__(
        self, cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None, capture_error_mode: str = "global"
    ) -> None:
        self._graph, self._stream = cuda_graph, stream if stream is not None else torch.cuda.Stream()

    def __enter__(self) -> None:
        gpu().synchronize()
        self._stream.__enter__()
        try:
            self._graph.capture_begin()
        except BaseException:
            self._stream.__exit__(None, None, None)
            raise

    def __exit__(self, *error: object) -> None:
        self._graph.capture_end()
        self._stream.__exit__(*error)


def install(cuda: Any) -> None:
    library = gpu().library
    library.emu_capture_end.restype = ctypes.c_void_p
    cuda.CUDAGraph, cuda.graph = CUDAGraph, graph
    cuda.graph_pool_handle = lambda: (0, 1)
    cuda.is_current_stream_capturing = capturing
