"""CUDA kernels on a CPU: the real text of a solution and of the kit's headers, compiled by g++ and run by real ranks.

Ranks are processes (`tests/cpu/world.py`) with the symmetric memory of the cpu platform, so a kernel reaches its peers through
pointers as on a GPU. The kit is the real one too; only `kit.compile` is replaced, by `compile` below. README.md says what
this finds and what it cannot find.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from ptx import to_cpp

import pkb.kit
from pkb.kit.arguments import Frame

HERE = Path(__file__).parent
HEADERS = Path(pkb.kit.__file__).parent / "device"
# Misaligned accesses trap, as they do on a GPU. Kernels look at bytes as they like.
FLAGS = ["-std=c++20", "-O1", "-w", "-fPIC", "-shared", "-pthread", "-fno-strict-aliasing"]
TRAPS = ["-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"]
BUILD_LIMIT_S = 120


def why_not() -> str | None:
    """Why this machine cannot run the emulator, or None."""
    compiler = shutil.which("g++")
    if compiler is None:
        return "the emulator needs g++, which is not installed"
    probe = ["g++", "-std=c++20", "-x", "c++", "-fsyntax-only", "-"]
    text = "#include <utility>\n_Float16 x = 1; auto f = []<class T>(T y) { return y; };"
    done = subprocess.run(probe, input=text, capture_output=True, text=True, timeout=60)
    return None if done.returncode == 0 else f"the emulator needs C++20 and _Float16: {done.stderr.strip()[-200:]}"


# --- building ---


class Emulator:
    """Builds kernels in `folder`, each text once, whichever rank comes first, and holds what the launches need to know."""

    def __init__(self, folder: Path, *, resident: int, edits: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        self.folder, self.resident = folder, resident
        self.launched: set[str] = set()
        """Names of kernels that ran."""
        self.recording: list[Any] | None = None
        """What `replay` takes: launches since it was set to a list, with their parameters as they were."""
        self.fails_next = False
        """The next launch raises, and nothing runs."""
        self.headers = self._edited(edits) if edits else HEADERS
        self.runtime = load_runtime(folder)

    def compile(
        self, source: str, *, name: str | None = None, options: Sequence[str] = (), arch: Any = None
    ) -> "Module":
        """In place of `kit.compile`."""
        defines = [option for option in options if option.startswith(("-D", "-U"))]
        text = self._preprocessed(source, defines)
        kernels = re.findall(r"\bEMU_KERNEL\s+void\s+(\w+)\s*\(", text)
        text = re.sub(r"\bextern EMU_SHARED (.+?) (\w+)\[\];", r"\1* \2 = (\1*)emu_shared();", text)
        text = re.sub(r"\bEMU_SHARED\b", "static thread_local", text)  # a thread runs one block at a time
        text = to_cpp(re.sub(r"\bEMU_KERNEL\b", "", text))
        glue = "".join(
            f'extern "C" void run_{k}(const unsigned* g, const unsigned* b, unsigned s, unsigned r, void** a) '
            f"{{ emu::launch(&{k}, g, b, s, r, a); }}\n"
            f'extern "C" int sizes_{k}(int* out) {{ return emu::sizes(&{k}, out); }}\n'
            for k in kernels
        )
        library = _build(self.folder, text + glue, [*FLAGS, *TRAPS], name=name or "kernel")
        return Module(self, ctypes.CDLL(str(library)), kernels)

    def _preprocessed(self, source: str, defines: list[str]) -> str:
        command = ["g++", "-std=c++20", "-E", "-P", "-x", "c++", *defines, "-I", str(self.headers), "-"]
        text = f'#include "{HERE / "cuda.h"}"\n{source}'
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
        if done.returncode:
            raise RuntimeError(done.stderr[-3000:])
        return done.stdout

    def _edited(self, edits: Mapping[str, Sequence[tuple[str, str]]]) -> Path:
        texts = {path.name: edited(path.read_text(), edits.get(path.name, ())) for path in HEADERS.glob("*.cuh")}
        key = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:16]
        folder = self.folder / f"headers-{key}"
        with _locked(self.folder, key):
            if not folder.exists():  # written once and whole: other ranks may be reading it
                scratch = self.folder / f"headers-{key}.tmp"
                scratch.mkdir(exist_ok=True)
                for name, text in texts.items():
                    (scratch / name).write_text(text)
                scratch.rename(folder)
        return folder


def edited(text: str, edits: Sequence[tuple[str, str]]) -> str:
    """The text with each (old, new) replaced; `old` must be there once, so that an edit cannot silently do nothing."""
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"{text.count(old)} times in the text, not once: {old!r}")
        text = text.replace(old, new)
    return text


@cache
def load_runtime(folder: Path) -> ctypes.CDLL:
    """runtime.cpp, for all kernels of this process."""
    library = _build(folder, (HERE / "runtime.cpp").read_text(), FLAGS, name="runtime")
    runtime = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    runtime.emu_configure.argtypes = [ctypes.c_uint, ctypes.c_double]
    runtime.emu_set_multicast.argtypes = [ctypes.c_uint, ctypes.c_void_p, ctypes.c_uint]
    return runtime


def _build(folder: Path, text: str, flags: list[str], *, name: str) -> Path:
    key = hashlib.sha256("\0".join([text, *flags]).encode()).hexdigest()[:16]
    library = folder / f"{name}-{key}.so"
    with _locked(folder, key):
        if not library.exists():
            source, scratch = folder / f"{name}-{key}.cpp", folder / f"{name}-{key}.tmp"
            source.write_text(text)
            command = ["g++", *flags, str(source), "-o", str(scratch)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
            if done.returncode:
                raise RuntimeError(f"g++ on {source}:\n{done.stderr[:3000]}")
            scratch.rename(library)
    return library


@contextlib.contextmanager
def _locked(folder: Path, key: str) -> Iterator[None]:
    with open(folder / f"{key}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# --- launching ---


class Module:
    """What `kit.compile` returns, as far as solutions use it."""

    def __init__(self, emulator: Emulator, library: ctypes.CDLL, names: list[str]) -> None:
        self._kernels = {name: Kernel(emulator, library, name) for name in names}

    def kernel(self, name: str) -> "Kernel":
        return self._kernels[name]


class Kernel:
    """A kernel to launch, as in the kit. The launch returns when the kernel has ended: there is no stream here."""

    def __init__(self, emulator: Emulator, library: ctypes.CDLL, name: str) -> None:
        self.name, self._emulator = name, emulator
        self._run = getattr(library, f"run_{name}")
        sizes = (ctypes.c_int * 64)()
        self._sizes = tuple(sizes[: getattr(library, f"sizes_{name}")(sizes)])

    def resident_blocks(self, block: Any, *, shared: int = 0, sms: int | None = None) -> int:
        return sms or self._emulator.resident  # one block an SM

    def __getitem__(self, configuration: tuple[Any, ...]) -> Any:
        grid, block, *rest = configuration
        return lambda *args: self.launch(grid, block, *args, shared=rest[0] if rest else 0)

    def launch(self, grid: Any, block: Any, *args: Any, shared: int = 0, cooperative: bool = False) -> None:
        if len(args) != len(self._sizes):
            raise TypeError(f"kernel {self.name!r} takes {len(self._sizes)} arguments, {len(args)} were passed")
        frame = Frame(len(args))  # the kit's own, which checks widths; it takes addresses of tensors on a GPU only
        values = tuple(value.data_ptr() if isinstance(value, torch.Tensor) else value for value in args)
        frame.fill(values, self._sizes, torch.Tensor, self.name)
        if self._emulator.fails_next:
            self._emulator.fails_next = False
            raise LaunchFailed(self.name)
        self._emulator.launched.add(self.name)
        shape = _three(grid), _three(block), shared, self._emulator.resident
        if self._emulator.recording is not None:
            kept = [ctypes.string_at(at, size) for at, size in zip(frame.pointers, self._sizes, strict=False)]
            self._emulator.recording.append((self._run, shape, kept))
        self._run(*shape, frame.pointers)


class LaunchFailed(Exception):
    """As the driver refuses a launch, on one rank alone."""


def replay(recording: list[Any]) -> None:
    """As a CUDA graph does: the same launches with the same parameters, and no code of the host in between."""
    for run, shape, kept in recording:
        values = [ctypes.create_string_buffer(data, len(data)) for data in kept]
        run(*shape, (ctypes.c_void_p * max(len(values), 1))(*map(ctypes.addressof, values)))


def _three(dim: Any) -> Any:
    return (ctypes.c_uint * 3)(*((dim, 1, 1) if isinstance(dim, int) else (*dim, 1, 1)[:3]))


# --- a solution in a rank ---

KEPT = {"_STAGES", "_PIPELINES", "_EXCHANGES"}
"""What modules of the kit keep from call to call."""
_installed = False


def load_solution(
    text: str, *, emulator: Emulator, symmetric_folder: Path, multicast: bool = False
) -> types.ModuleType:
    """The solution's module in this rank, with no memory of those before it. All ranks must load the same, together."""
    global _installed
    import torch.distributed._symmetric_memory as torch_symmetric

    from pkb.rank.symmetric import memory as symmetric

    if not _installed:
        symmetric.install(symmetric_folder, timeout_s=60)
        _installed = True
    for name, part in list(sys.modules.items()):
        if name.startswith("pkb.kit."):
            for kept in KEPT & vars(part).keys():
                vars(part)[kept].clear()
    real: Any = getattr(torch_symmetric.rendezvous, "real", torch_symmetric.rendezvous)
    count = 0

    def rendezvous(tensor: torch.Tensor, group: Any = None) -> Any:
        nonlocal count
        handle = real(tensor, group)
        if multicast and handle is not None:
            count += 1
            emulator.runtime.emu_set_multicast(count, handle.buffer_ptrs_dev, handle.world_size)
            handle.multicast_ptr = 0x70 << 48 | count << 40
        return handle

    rendezvous.real = real  # type: ignore[attr-defined]
    torch_symmetric.rendezvous = rendezvous
    pkb.kit.compile = emulator.compile  # type: ignore[assignment]
    vars(sys.modules["pkb.kit.staging"])["sm_count"] = lambda device: emulator.resident
    cuda: Any = torch.cuda
    cuda.get_device_properties = lambda device=None: types.SimpleNamespace(multi_processor_count=2)
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
