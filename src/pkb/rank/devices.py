"""What a rank needs of the device it runs on: waiting, stamping time, spinning, emptying caches. One class a kind of device.

Both sides, oracle and candidate, use the same code, so that whatever it costs falls on both.
"""

import ctypes
import mmap
import os
import struct
import time
from typing import Any, Protocol

import torch

from pkb.rank.contexts import Contexts, load_driver, multicast_words, wait_asleep
from pkb.rank.window.device import DeviceWindow, Sentinel
from pkb.rank.window.host import HostWindow
from pkb.rank.window.seals import Window
from pkb.types.protocol.replies import Company

_SLOT = struct.Struct("=Q")


# Taken before any candidate is loaded: replacing methods of torch's events or of the time module changes nothing here.
_EVENT = getattr(torch._C, "_CudaEventBase", object)
_RECORD, _ELAPSED = getattr(_EVENT, "record", None), getattr(_EVENT, "elapsed_time", None)
_SYNCHRONIZE, _CURRENT_STREAM, _SET_DEVICE = torch.cuda.synchronize, torch.cuda.current_stream, torch.cuda.set_device


class RankBarrier:
    """A barrier of the ranks of one side on a page of memory they inherited; bounded in time.

    Each rank counts its arrivals in a slot of its own, so there is one writer to a word and no atomic operation is needed.
    """

    SLOT_BYTES = 64

    def __init__(self, page: mmap.mmap, rank: int, world_size: int) -> None:
        self._page, self._rank, self._world_size = page, rank, world_size
        self._epoch = 0

    def wait(self, *, timeout_s: float) -> None:
        """Until all ranks are here."""
        self._epoch += 1
        _SLOT.pack_into(self._page, self._rank * self.SLOT_BYTES, self._epoch)
        give_up = time.monotonic() + timeout_s
        spins = 0
        for peer in range(self._world_size):
            while _SLOT.unpack_from(self._page, peer * self.SLOT_BYTES)[0] < self._epoch:
                spins += 1
                if spins > 200:
                    if spins < 5000:
                        os.sched_yield()  # a sleep, even of no time at all, takes 60 us
                    else:
                        time.sleep(1e-4)
                    if time.monotonic() > give_up:
                        raise TimeoutError(
                            f"rank {self._rank} waited {timeout_s:.0f} s for rank {peer} to begin a call"
                        )


class Device(Protocol):
    torch_device: torch.device
    window: Window
    in_step: bool
    """The host runs in step with it, so that ranks begin together where their hosts do; else `align` lets the devices."""

    def make_current(self) -> None: ...
    def wait(self) -> None: ...
    def wait_elsewhere(self) -> float: ...
    def synchronize(self) -> None: ...
    def align(self) -> None: ...
    def forget_stamps(self) -> None: ...
    def stamp(self) -> Any: ...
    def read_ns(self, stamp: Any) -> int: ...
    def spin(self, microseconds: float) -> None: ...
    def unpin_cache(self) -> None: ...
    def flush_cache(self) -> None: ...
    def company(self, *, long: bool) -> Company: ...
    def facts(self) -> dict[str, str]: ...


class CpuDevice:
    """The host itself. Stamps are the monotonic clock, which all processes of the machine share."""

    in_step = True

    def __init__(self) -> None:
        self.window: Window = HostWindow()
        self.torch_device = torch.device("cpu")
        self._scratch = torch.zeros(4 << 20, dtype=torch.uint8)
        self._clock = time.monotonic_ns

    def make_current(self) -> None:
        return

    def wait(self) -> None:
        return

    def wait_elsewhere(self) -> float:
        return 0.0

    def synchronize(self) -> None:
        return

    def align(self) -> None:
        return

    def forget_stamps(self) -> None:
        return

    def stamp(self) -> int:
        return self._clock()

    def read_ns(self, stamp: int) -> int:
        return stamp

    def spin(self, microseconds: float) -> None:
        time.sleep(microseconds * 1e-6)

    def unpin_cache(self) -> None:
        return

    def flush_cache(self) -> None:
        self._scratch.add_(1)

    def company(self, *, long: bool) -> Company:
        """Whoever else uses these cores is seen by the judge, in the table of processes."""
        return Company(1.0, 0.0)

    def facts(self) -> dict[str, str]:
        return {"clock": "CLOCK_MONOTONIC"}


class CudaDevice:
    """One GPU, or a share of one. Stamps are events, which cost the host next to nothing. Their zero is this rank's own: only
    differences between stamps of one rank mean anything."""

    in_step = False

    def __init__(self, index: int, *, sharers: int, timed: bool = True) -> None:
        self.torch_device = torch.device("cuda", index)
        self._cudart, self._driver = _load_cudart(), load_driver()
        if not timed:
            wait_asleep(self._driver, index)
        self.make_current()
        properties = torch.cuda.get_device_properties(index)
        # Twice the L2, shared out over the ranks that flush it together when they share a GPU.
        flush_bytes = max(16 << 20, 2 * properties.L2_cache_size // sharers)
        self._scratch = torch.zeros(flush_bytes, dtype=torch.uint8, device=self.torch_device)
        self._cycles_per_us = max(1.0, getattr(properties, "clock_rate", 1_980_000) / 1000)
        self._handle: Any = None
        self._contexts = Contexts(self._driver, index, torch.cuda.device_count())
        self.window: Window = DeviceWindow(properties.multi_processor_count, device=self.torch_device)
        self._sentinel: Sentinel | None = None
        self._events: list[torch.cuda.Event] = []
        self._used = 0

    def open_barrier(self) -> None:
        """A device-side barrier on symmetric memory of our own, for a common start of all ranks."""
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symmetric

        page = symmetric.empty(64, dtype=torch.int32, device=self.torch_device)
        self._handle = symmetric.rendezvous(page, dist.distributed_c10d._get_default_group())
        self._page = page
        self.align()
        self.synchronize()

    def make_current(self) -> None:
        """A candidate may leave another device current, and what we launch would go there."""
        _SET_DEVICE(self.torch_device)

    def wait(self) -> None:
        """Until our own device is idle."""
        _SYNCHRONIZE(self.torch_device)

    def wait_elsewhere(self) -> float:
        """Until all others are on which this process has a context; how many microseconds longer that took than to ask once
        more, when they are idle. Asking takes a while itself, and is no work of the candidate's."""
        others = self._contexts.others()
        if not others:
            return 0.0
        took = []
        for _ in range(2):
            began = time.perf_counter()
            for other in others:
                _SYNCHRONIZE(other)
            took.append(time.perf_counter() - began)
        return 1e6 * max(0.0, took[0] - took[1])

    def synchronize(self) -> None:
        """All that this process has under way, on a peer's GPU too."""
        self.wait()
        for other in self._contexts.others():
            _SYNCHRONIZE(other)

    def align(self) -> None:
        if self._handle is not None:
            self._handle.barrier(channel=0)

    def forget_stamps(self) -> None:
        self._used = 0

    def stamp(self) -> int:
        if self._used == len(self._events):
            self._events.append(torch.cuda.Event(enable_timing=True))
        _RECORD(self._events[self._used], _CURRENT_STREAM(self.torch_device))  # type: ignore[misc]
        self._used += 1
        return self._used - 1

    def read_ns(self, stamp: int) -> int:
        return int(1e6 * _ELAPSED(self._events[0], self._events[stamp]))  # type: ignore[misc]

    def spin(self, microseconds: float) -> None:
        torch.cuda._sleep(int(microseconds * self._cycles_per_us))

    def unpin_cache(self) -> None:
        """Lines that an access policy has pinned survive an ordinary flush. Takes effect at once, on an idle device."""
        if self._cudart is not None:
            self._cudart.cudaCtxResetPersistingL2Cache()

    def flush_cache(self) -> None:
        self._scratch.add_(1)

    def company(self, *, long: bool) -> Company:
        if self._sentinel is None:
            self._sentinel = Sentinel(self.torch_device)
            self._sentinel.look()  # the first launch loads the kernel
        return self._sentinel.look(long=long)

    def facts(self) -> dict[str, str]:
        properties = torch.cuda.get_device_properties(self.torch_device)
        return {
            "gpu": properties.name,
            "sms": str(properties.multi_processor_count),
            "cuda": str(torch.version.cuda),
            "nccl": _nccl_version(),
            "multicast": multicast_words(self._driver, self.torch_device.index),
            "clock": "CUDA events",
        }


def _load_cudart() -> ctypes.CDLL | None:
    major = str(torch.version.cuda or "").split(".")[0]
    try:
        return ctypes.CDLL(f"libcudart.so.{major}")
    except OSError:
        return None


def _nccl_version() -> str:
    """Of the library that is loaded, which may have been preloaded: torch only knows which one it was built with."""
    number = ctypes.c_int()
    try:
        ctypes.CDLL(None).ncclGetVersion(ctypes.byref(number))
    except AttributeError:
        return ".".join(map(str, torch.cuda.nccl.version()))
    return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"
