"""Our kernels on the emulated GPU of platform cpu (docs/cuda-on-cpu.md), with what tests want beside it: headers with faults,
few resident blocks, launches that fail, launches replayed as a CUDA graph does. README.md says what this finds."""

import copy
import ctypes
import os
import re
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch

import pkb.kit
from pkb.judge.stages import artifacts
from pkb.kit.cuda import DEVICE_HEADERS
from pkb.kit.emulated import recipe
from pkb.rank.devices import CpuDevice
from pkb.rank.emulate.cuda import install, kernels, switch
from pkb.rank.emulate.cuda.device import PROPERTIES, gpu
from pkb.rank.emulate.cuda_stand_ins import install_stand_ins
from pkb.rank.symmetric import memory, rendezvous
from pkb.rank.symmetric.activity import ACTIVITY
from pkb.rank.symmetric.handle import Handle

Edits = Mapping[str, Sequence[tuple[str, str]]]


class Emulator:
    """Builds kernels in `folder`, each text once, whichever rank comes first, and holds what the launches need to know."""

    def __init__(self, folder: Path, *, resident: int, edits: Edits, seed: int = 1, limit_s: float = 1.0) -> None:
        self.resident = resident
        self.launched: set[str] = set()
        """Names of kernels that ran."""
        self.recording: list[Any] | None = None
        """What `replay` takes: launches since it was set to a list."""
        self.fails_next = False
        """The next launch raises, and nothing runs."""
        os.environ["PKB_BUILD_DIR"] = str(folder)
        os.environ["PKB_BUILD_CACHE"] = str(artifacts.cache_folder())  # the runtime is built once a machine
        headers = {
            path.name: edited(path.read_text(), edits.get(path.name, ())) for path in DEVICE_HEADERS.glob("*.cuh")
        }
        cast(Any, recipe)._headers = lambda: headers
        device = gpu()
        device.library.emu_configure(ctypes.c_uint(seed), device._report)
        device.library.emu_limit_blocks(resident)
        ACTIVITY.on_wait = Watchdog(limit_s)

    def compile(
        self, source: str, *, name: str | None = None, options: Sequence[str] = (), arch: Any = None
    ) -> "Module":
        """In place of `kit.compile`."""
        return Module(self, kernels.compile(source, name=name, options=options))


class Watchdog:
    """Ends this rank if a kernel waits in vain for so long: a deadlock."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._timer: threading.Timer | None = None

    def __call__(self, text: str | None) -> None:
        if text is None and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif text is not None and self._timer is None:
            self._timer = threading.Timer(self._limit_s, self._end, (text,))
            self._timer.daemon = True
            self._timer.start()

    @staticmethod
    def _end(text: str) -> None:
        os.write(2, f"{text}\n".encode())
        os.abort()


def edited(text: str, edits: Sequence[tuple[str, str]]) -> str:
    """The text with each (old, new) replaced; `old` must be there once, so that an edit cannot silently do nothing."""
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"{text.count(old)} times in the text, not once: {old!r}")
        text = text.replace(old, new)
    return text


class Module:
    """What `kit.compile` returns, as far as solutions use it."""

    def __init__(self, emulator: Emulator, module: kernels.EmulatedModule) -> None:
        self._emulator, self._module = emulator, module

    def kernel(self, name: str) -> "Kernel":
        return Kernel(self._emulator, self._module, name)


class Kernel(kernels.EmulatedKernel):
    def __init__(self, emulator: Emulator, module: kernels.EmulatedModule, name: str) -> None:
        super().__init__(module, name)
        self._emulator = emulator

    def resident_blocks(self, block: Any, *, shared: int = 0, sms: int | None = None) -> int:
        return sms or self._emulator.resident  # one block an SM

    def run(self, grid: Any, block: Any, args: tuple[Any, ...], *, shared: int, cooperative: bool) -> None:
        if self._emulator.fails_next:
            self._emulator.fails_next = False
            raise LaunchFailed(self.name)
        self._emulator.launched.add(self.name)
        if self._emulator.recording is not None:
            kept = tuple(value if isinstance(value, torch.Tensor) else copy.deepcopy(value) for value in args)
            self._emulator.recording.append((super().run, grid, block, kept, shared, cooperative))
        super().run(grid, block, args, shared=shared, cooperative=cooperative)


class LaunchFailed(Exception):
    """As the driver refuses a launch, on one rank alone."""


def replay(recording: list[Any]) -> None:
    """As a CUDA graph does: the same launches with the same parameters, and no code of the host in between."""
    for run, grid, block, kept, shared, cooperative in recording:
        run(grid, block, kept, shared=shared, cooperative=cooperative)


# --- a solution in a rank ---

KEPT = {"_STAGES", "_PIPELINES", "_EXCHANGES"}
"""What modules of the kit keep from call to call."""
_installed = False


def become_a_rank(symmetric_folder: Path | None) -> None:
    """Once in a process: it replaces parts of torch."""
    global _installed
    if not _installed:
        if symmetric_folder is not None:
            memory.install(symmetric_folder, timeout_s=60)
        install_stand_ins(torch.distributed.get_rank())
        install.install(CpuDevice(), "")
        _installed = True


def load_solution(text: str, *, emulator: Emulator, multicast: bool = False) -> types.ModuleType:
    """The solution's module in this rank, with no memory of those before it. All ranks must load the same, together."""
    for name, part in list(sys.modules.items()):
        if name.startswith("pkb.kit."):
            for kept in KEPT & vars(part).keys():
                vars(part)[kept].clear()
    Handle.has_switch = multicast
    rendezvous.ON_HANDLE[:] = [switch._give_address] if multicast else []
    cast(Any, pkb.kit).compile = emulator.compile
    vars(sys.modules["pkb.kit.staging"])["sm_count"] = lambda device: emulator.resident
    PROPERTIES.multi_processor_count = 2
    module = types.ModuleType("candidate")
    exec(compile(text, f"solution in process {os.getpid()}", "exec"), module.__dict__)
    return module


def with_constants(text: str, constants: Mapping[str, Any]) -> str:
    """A solution's text with other values for `NAME = ...` lines of the module."""
    for name, value in constants.items():
        text, count = re.subn(rf"^{name} = [^#\n]*", f"{name} = {value}  ", text, flags=re.M)
        if count != 1:
            raise ValueError(f"{count} lines `{name} = ...`, not one")
    return text
