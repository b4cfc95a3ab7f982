"""What `kit.compile` gives on a CPU: modules and kernels with the kit's interface, run by the emulated GPU."""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from pkb.kit.arguments import Frame
from pkb.kit.cuda import _plain_name
from pkb.kit.emulated.recipe import module_recipe
from pkb.kit.emulated.rewrite import NotEmulated
from pkb.kit.errors import NoKernel
from pkb.rank.emulate.cuda.device import SMS, NotEmulatedHere, dimensions, gpu, pointer_arguments, resident_blocks

Dim = int | tuple[int, ...]


def compile(
    source: str, *, name: str | None = None, options: Sequence[str] = (), arch: str | None = None
) -> "EmulatedModule":
    """In place of `kit.compile`."""
    name = _plain_name(name or "kernel")
    gpu()
    try:
        artifact = module_recipe(source, name=name, options=tuple(options)).obtain()
    except NotEmulated as what:
        raise NotEmulatedHere(str(what)) from what
    return EmulatedModule(name, artifact)


class EmulatedModule:
    def __init__(self, name: str, artifact: Any) -> None:
        self.name, self.arch, self.artifact = name, "sm_90a", artifact
        self._library = ctypes.CDLL(str(artifact.path))
        self._kernels: dict[str, EmulatedKernel] = {}

    def kernel(self, name: str) -> "EmulatedKernel":
        if name not in self._kernels:
            self._kernels[name] = EmulatedKernel(self, name)
        return self._kernels[name]

    def find(self, name: str) -> Any:
        try:
            return pointer_arguments(self._library, name)
        except AttributeError:
            raise NoKernel(f'no kernel {name!r} in {self.name}.cu. Is it `extern "C"`?') from None

    def sizes(self, name: str) -> tuple[int, ...]:
        sizes = (ctypes.c_int * 256)()
        return tuple(sizes[: getattr(self._library, f"emu_sizes_{name}")(sizes)])

    def __repr__(self) -> str:
        return f"EmulatedModule({self.name!r}, emulated)"


class EmulatedKernel:
    """`kernel[grid, block](*args)`, as in the kit."""

    def __init__(self, module: EmulatedModule, name: str) -> None:
        self.name, self._module = name, module
        self._run: Any = None
        self._sizes: tuple[int, ...] = ()

    def _load(self) -> None:
        if self._run is None:  # on the first launch, as on a GPU
            self._run, self._sizes = self._module.find(self.name), self._module.sizes(self.name)

    def resident_blocks(self, block: Dim, *, shared: int = 0, sms: int | None = None) -> int:
        x, y, z = dimensions(block)
        return resident_blocks(x * y * z, shared, sms=sms or SMS)

    def __getitem__(self, configuration: tuple[Any, ...]) -> "EmulatedLauncher":
        grid, block, *rest = configuration
        return EmulatedLauncher(self, grid, block, shared=rest[0] if rest else 0)

    def launch(self, grid: Dim, block: Dim, *args: Any, shared: int = 0, cooperative: bool = False) -> None:
        EmulatedLauncher(self, grid, block, shared=shared, cooperative=cooperative)(*args)

    def run(self, grid: Any, block: Any, args: tuple[Any, ...], *, shared: int, cooperative: bool) -> None:
        self._load()
        if len(args) != len(self._sizes):
            raise TypeError(f"kernel {self.name!r} takes {len(self._sizes)} arguments, {len(args)} were passed")
        blocks, threads = grid[0] * grid[1] * grid[2], block[0] * block[1] * block[2]
        fits = not cooperative or blocks <= resident_blocks(threads, shared) * 132 // 16
        if blocks == 0 or not 0 < threads <= 1024 or shared > 227 << 10 or not fits:
            raise RuntimeError(f"launch of {self.name!r}: grid {list(grid)}, block {list(block)}, shared {shared}")
        frame = Frame(len(args))  # it checks widths; tensors must say that they are on a GPU, and here they are told to
        values = tuple(value.data_ptr() if isinstance(value, torch.Tensor) else value for value in args)
        frame.fill(values, self._sizes, torch.Tensor, self.name, grid)
        device = gpu()
        stream = torch.cuda.current_stream()
        keep = getattr(stream, "keep", None)
        if keep is not None:
            keep(args)  # it may run later
        before = device.library.emu_last_error(1)  # that of an extension, which has not asked for it yet
        self._run(grid, block, shared, stream.cuda_stream, int(cooperative), frame.pointers)
        error = device.library.emu_last_error(1)  # its clusters do not fit the grid, or are too large
        device.library.emu_set_error(before)
        if error:
            raise RuntimeError(f"launch of {self.name!r}: grid {list(grid)}, block {list(block)}: CUDA error {error}")
        device.check()


class EmulatedLauncher:
    __slots__ = ("_block", "_cooperative", "_grid", "_kernel", "_shared")

    def __init__(
        self, kernel: EmulatedKernel, grid: Dim, block: Dim, *, shared: int = 0, cooperative: bool = False
    ) -> None:
        self._kernel, self._grid, self._block = kernel, dimensions(grid), dimensions(block)
        self._shared, self._cooperative = shared, cooperative

    def __call__(self, *args: Any) -> None:
        self._kernel.run(self._grid, self._block, args, shared=self._shared, cooperative=self._cooperative)
