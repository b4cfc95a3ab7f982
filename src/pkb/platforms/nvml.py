"""What NVML says of this machine's GPUs. It makes no CUDA context, so it may be asked in any process and at any time.

All of it may be missing: no driver, an old one, a GPU that this user may not open. What cannot be read is left out, and
whoever asks is told why.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}


@dataclass(frozen=True)
class Gpu:
    name: str
    memory_bytes: int
    driver: str
    uuid: str
    index: int = 0
    """In the order of the PCI bus, counting the GPUs that this user may open: CUDA's own number with PCI_BUS_ID."""
    compute_mode: str = "default"
    mig: bool = False
    capability: tuple[int, int] = (0, 0)

    @property
    def architecture(self) -> str:
        """As compilers are told: `9.0a`. The `a` turns on instructions that exist on that one architecture only."""
        major, minor = self.capability
        return f"{major}.{minor}{'a' if major >= 9 else ''}" if major else ""


@dataclass(frozen=True)
class Inventory:
    gpus: tuple[Gpu, ...] = ()
    left_out: tuple[str, ...] = ()
    """GPUs that are there and cannot be opened, and why."""
    cuda: tuple[int, int] = (0, 0)
    """The newest CUDA that the driver runs; zeros where it does not say."""


@contextmanager
def library() -> Iterator[Any]:
    """`pynvml`, initialised, or None where there is none."""
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    yield pynvml


def read(nvml: Any, call: str, *given: Any, default: Any) -> Any:
    """What a call says, or `default` where this driver, GPU or user cannot know."""
    try:
        return getattr(nvml, call)(*given)
    except (nvml.NVMLError, AttributeError):  # an older nvidia-ml-py has fewer calls
        return default


def handle_of(nvml: Any, gpu: "Gpu") -> Any:
    """None for a GPU that is lost; no call takes that, so nothing is known of it."""
    return read(nvml, "nvmlDeviceGetHandleByUUID", gpu.uuid, default=None)


@cache
def machine() -> Inventory:
    with library() as nvml:
        if nvml is None:
            return Inventory()
        driver = text(read(nvml, "nvmlSystemGetDriverVersion", default=""))
        found: list[tuple[str, Gpu]] = []
        left_out = []
        for index in range(read(nvml, "nvmlDeviceGetCount", default=0)):
            try:
                found.append(_gpu(nvml, index, driver))
            except nvml.NVMLError as error:
                left_out.append(f"GPU {index} of this machine cannot be opened: {error}")
        in_bus_order = [gpu for _, gpu in sorted(found, key=lambda item: item[0])]
        cuda = int(read(nvml, "nvmlSystemGetCudaDriverVersion_v2", default=0))  # 12040 for 12.4
        return Inventory(
            tuple(Gpu(**{**vars(gpu), "index": index}) for index, gpu in enumerate(in_bus_order)),
            tuple(left_out),
            (cuda // 1000, cuda % 1000 // 10),
        )


def _gpu(nvml: Any, index: int, driver: str) -> tuple[str, Gpu]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    mode = int(read(nvml, "nvmlDeviceGetComputeMode", handle, default=0))
    place = read(nvml, "nvmlDeviceGetPciInfo", handle, default=None)
    bus = text(place.busId) if place is not None else f"{index:08}"
    major, minor = read(nvml, "nvmlDeviceGetCudaComputeCapability", handle, default=(0, 0))
    return bus, Gpu(
        name=text(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        driver=driver,
        uuid=text(nvml.nvmlDeviceGetUUID(handle)),
        compute_mode=COMPUTE_MODES.get(mode, str(mode)),
        mig=int(read(nvml, "nvmlDeviceGetMigMode", handle, default=(0, 0))[0]) == 1,
        capability=(int(major), int(minor)),
    )


def text(value: object) -> str:
    """Older versions of nvidia-ml-py give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def cores_near(gpu: Gpu, cores: int) -> tuple[int, ...]:
    """Of the machine's `cores`, those of the NUMA node that a GPU is attached to; none where nothing is known."""
    words = (cores + 63) // 64
    with library() as nvml:
        if nvml is None:
            return ()
        mask = read(nvml, "nvmlDeviceGetCpuAffinity", handle_of(nvml, gpu), words, default=[0] * words)
    return tuple(core for core in range(cores) if int(mask[core // 64]) >> core % 64 & 1)


def memory_in_use(gpus: Sequence[Gpu]) -> list[int]:
    """Bytes that are taken of each, by whomever; empty where that cannot be read."""
    with library() as nvml:
        if nvml is None:
            return []
        found = [read(nvml, "nvmlDeviceGetMemoryInfo", handle_of(nvml, gpu), default=None) for gpu in gpus]
    return [int(memory.used) for memory in found] if all(found) else []
