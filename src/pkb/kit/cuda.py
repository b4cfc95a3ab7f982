"""Compile CUDA C++ and launch its kernels on torch's stream, without torch's headers.

    module = kit.compile('extern "C" __global__ void twice(float* x, long long n) { ... }')
    twice = module.kernel("twice")
    twice[blocks, threads](x, x.numel())

`compile` needs no GPU; a kernel is loaded on its first launch.
"""

import os
import re
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pkb.kit import driver, kittens, nvcc, nvrtc
from pkb.kit.arguments import Frame
from pkb.kit.cache import Artifact, Recipe, content_key
from pkb.kit.errors import CompileError, CompilerMissing
from pkb.kit.nccl_device import headers as nccl_headers
from pkb.kit.nvshmem import host, link
from pkb.kit.options import check_options, debug_options
from pkb.kit.toolkit import resolve_arch

Dim = int | tuple[int, ...]
DEVICE_HEADERS = Path(__file__).parent / "device"


@lru_cache
def _headers() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(DEVICE_HEADERS.glob("*.cuh"))}


def compile(source: str, *, name: str | None = None, options: Sequence[str] = (), arch: str | None = None) -> "Module":
    """Compile a CUDA source for `arch` (default: this GPU) or take it from the cache. Raises `CompileError`.

    `#include "pkb.cuh"` gives signals, barriers and peer copies. Declare kernels `extern "C"`, so that their names
    stay as written. `name` appears in messages as `name.cu`; `options` are compiler flags such as `-lineinfo` or
    `-DBLOCK=128`.
    """
    name = _plain_name(name or "kernel")
    arch = resolve_arch(arch)
    artifact = cubin_recipe(source, name=name, options=tuple(options), arch=arch).obtain()
    return Module(source, name=name, artifact=artifact, arch=arch)


def _plain_name(name: str) -> str:
    """A name that is safe as a file name: it comes from the candidate."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)[:80]


def cubin_recipe(source: str, *, name: str, options: tuple[str, ...], arch: str) -> Recipe:
    """With NVRTC, else nvcc (`PKB_CUDA_COMPILER=nvcc` insists, and NCCL's headers, which include the host's, need it)."""
    check_options(options, "device", name=name)
    options = (*options, *debug_options())
    headers = _headers()
    if link.is_used(source):
        key = content_key("nvshmem", source, *headers.values(), "\0".join(options), arch, link.identity())

        def link_it(scratch: Path, output: Path) -> None:
            output.write_bytes(
                link.link_cubin(source, name=name, arch=arch, options=options, headers=headers, scratch=scratch)
            )

        return Recipe(key, ".cubin", name, link_it)
    nccl = nccl_headers.wanted(source)
    only_nvcc = nccl is not None or kittens.used_in(source) or os.environ.get("PKB_CUDA_COMPILER") == "nvcc"
    by_nvrtc, by_nvcc = None if only_nvcc else nvrtc.load(), nvcc.find()
    if by_nvrtc is None and by_nvcc is None:
        other = "NCCL's headers need nvcc: " if nccl else "`pip install nvidia-cuda-nvrtc`, or "
        raise CompilerMissing(f"no CUDA compiler here: {other}install the CUDA toolkit")
    identities = [found[1] for found in (by_nvrtc, by_nvcc) if found is not None]
    identities += kittens.identity(source)
    options = (*options, *kittens.flags(source, options, arch=arch))
    flags = options
    if nccl is not None:  # in the key stands what the folder holds, not where it is
        identities.append(nccl_headers.identity(nccl))
        flags = (*options, f"-I{nccl}", "--extended-lambda")  # its functions that reduce and copy are lambdas inside

    def build(scratch: Path, output: Path) -> None:
        if by_nvrtc is not None:
            try:
                output.write_bytes(nvrtc.compile_cubin(source, name=name, arch=arch, options=options, headers=headers))
                return
            except CompileError as error:
                # NVRTC knows no host headers (<type_traits>); nvcc does, and then it is no error of the candidate.
                if by_nvcc is None or "cannot open source file" not in error.log:
                    raise
        cubin = nvcc.compile_cubin(source, name=name, arch=arch, options=flags, headers=headers, scratch=scratch)
        output.write_bytes(cubin)

    key = content_key("cubin", source, *headers.values(), "\0".join(options), arch, *identities)
    return Recipe(key, ".cubin", name, build)


class Module:
    """A compiled source. `kernel(name)` gives its kernels; `artifact` says where the cubin lies and whether it was
    cached.
    """

    def __init__(self, source: str, *, name: str, artifact: Artifact, arch: str) -> None:
        self.name = name
        self.arch = arch
        self.artifact = artifact
        self._source = source
        self._kernels: dict[str, Kernel] = {}
        self._handles: dict[int, Any] = {}

    def kernel(self, name: str) -> "Kernel":
        if name not in self._kernels:
            self._kernels[name] = Kernel(self, name)
        return self._kernels[name]

    def function(self, name: str, *, device: int) -> Any:
        """The driver's handle of a kernel on a device; loads the module there on first use."""
        if device not in self._handles:
            self._handles[device] = driver.load_module(self.artifact.path, device=device)
            if link.is_used(self._source):
                host.enter_module(self._handles[device])
        found = driver.get_function(self._handles[device], name)
        if found is None:
            declared = re.findall(r"__global__[^;{]*?(\w+)\s*\(", self._source)
            raise KeyError(f'no kernel {name!r} in {self.name}.cu; it declares {declared}. Is it `extern "C"`?')
        return found

    def __repr__(self) -> str:
        return f"Module({self.name!r}, {self.arch}, {self.artifact.path.name})"


class _Loaded:
    """One kernel on one device: its handle, what it takes, and how much shared memory was asked for."""

    def __init__(self, handle: Any, *, device: int) -> None:
        self.handle = handle
        self.device = device
        self.sizes = driver.parameter_sizes(handle)
        self.shared = 0

    def prepare(self, shared: int) -> None:
        if shared > self.shared:
            driver.allow_shared(self.handle, shared, device=self.device)
            self.shared = shared


class Kernel:
    """A kernel to launch: `kernel[grid, block](*args)`, `kernel[grid, block, shared_bytes](*args)` or `.launch(...)`.

    `pkb.kit.arguments` says what Python values become. The launch is asynchronous, on torch's current stream.
    """

    def __init__(self, module: Module, name: str) -> None:
        self.name = name
        self._module = module
        self._loaded: dict[int, _Loaded] = {}
        self._frames: dict[int, Frame] = {}
        # Frames are reused, and ctypes lets other threads run while the driver works.
        self._lock = threading.Lock()

    def __getitem__(self, configuration: tuple[Any, ...]) -> "Launcher":
        grid, block, *rest = configuration
        return Launcher(self, grid, block, shared=rest[0] if rest else 0)

    def launch(self, grid: Dim, block: Dim, *args: Any, shared: int = 0, cooperative: bool = False) -> None:
        """Launch once. `cooperative` makes the driver refuse a grid that does not fit the GPU all at once."""
        Launcher(self, grid, block, shared=shared, cooperative=cooperative)(*args)

    def resident_blocks(self, block: Dim, *, shared: int = 0, sms: int | None = None) -> int:
        """How many blocks run at the same time on this GPU: the largest grid in which one block may wait for another.
        `sms` in place of this GPU's own number of SMs: where blocks wait for those of other ranks, all must agree.
        """
        torch, device = _device()
        loaded = self._on(device)
        loaded.prepare(shared)
        x, y, z = _three(block)
        per_sm = driver.blocks_per_sm(loaded.handle, threads=x * y * z, shared=shared)
        return per_sm * int(sms or torch.cuda.get_device_properties(device).multi_processor_count)

    def _on(self, device: int) -> _Loaded:
        loaded = self._loaded.get(device)
        if loaded is None:
            loaded = self._loaded[device] = _Loaded(self._module.function(self.name, device=device), device=device)
        return loaded

    def _run(self, geometry: tuple[int, ...], args: tuple[Any, ...], *, shared: int, cooperative: bool) -> None:
        torch, device = _device()
        loaded = self._on(device)
        sizes = loaded.sizes
        if sizes is not None and len(sizes) != len(args):
            # The driver would read past the end of the pointer array.
            raise TypeError(f"kernel {self.name!r} takes {len(sizes)} arguments, {len(args)} were passed")
        loaded.prepare(shared)
        stream = torch._C._cuda_getCurrentRawStream(device)
        call = driver.library().cuLaunchCooperativeKernel if cooperative else driver.library().cuLaunchKernel
        extra = () if cooperative else (None,)
        with self._lock:
            frame = self._frames.get(len(args))
            if frame is None:
                frame = self._frames[len(args)] = Frame(len(args))
            frame.fill(args, sizes, torch.Tensor, self.name, geometry)
            status = call(loaded.handle, *geometry, shared, stream, frame.pointers, *extra)
            if status == driver.INVALID_CONTEXT:  # first CUDA call of this thread
                driver.enter_context(device)
                status = call(loaded.handle, *geometry, shared, stream, frame.pointers, *extra)
        if status != 0:
            detail = f"grid {geometry[:3]}, block {geometry[3:]}, shared {shared}"
            raise driver.DriverError(f"launch of {self.name!r}", status, detail)


class Launcher:
    """A kernel with its launch geometry. Keep it and call it again: that saves a microsecond."""

    __slots__ = ("_cooperative", "_geometry", "_kernel", "_shared")

    def __init__(self, kernel: Kernel, grid: Dim, block: Dim, *, shared: int = 0, cooperative: bool = False) -> None:
        self._kernel = kernel
        self._geometry = (*_three(grid), *_three(block))
        self._shared = shared
        self._cooperative = cooperative

    def __call__(self, *args: Any) -> None:
        self._kernel._run(self._geometry, args, shared=self._shared, cooperative=self._cooperative)


def _three(dim: Dim) -> tuple[int, int, int]:
    x, y, z = (dim, 1, 1) if isinstance(dim, int) else (*dim, 1, 1)[:3]
    return x, y, z


@lru_cache
def _torch() -> Any:
    """torch, once it is known to have a GPU (asking on every launch costs microseconds). Compiling does not need it."""
    import torch

    if not torch.cuda.is_available():
        driver.library()  # says why, where the driver knows
        raise RuntimeError("a CUDA kernel needs a GPU, and torch.cuda.is_available() is False (a CPU build of torch?)")
    return torch


def _device() -> tuple[Any, int]:
    torch = _torch()
    return torch, torch.cuda.current_device()
