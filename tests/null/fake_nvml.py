"""An NVML that says what a test wants: a module to stand for `pynvml`, over GPUs that do not exist."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pkb.platforms import cuda, nvml


class NVMLError(Exception):
    pass


@dataclass
class FakeGpu:
    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    bus: str = ""
    memory_bytes: int = 80 << 30
    capability: tuple[int, int] = (9, 0)
    forbidden: bool = False
    """This user may not open it."""
    compute_mode: int = 0
    mig: bool = False
    links: int = 18
    to_switch: bool = True
    unreachable: tuple[str, ...] = ()
    """UUIDs of GPUs whose memory it cannot read."""
    processes: dict[int, int] = field(default_factory=dict)
    """Bytes by process id."""
    throttling: int = 0
    power_w: float = 700
    cores: tuple[int, ...] = (0,)


def box(count: int, **more: Any) -> list[FakeGpu]:
    return [
        FakeGpu(f"GPU-{number}{number}aa-{number}", bus=f"0000:{number:02}:00.0", **more) for number in range(count)
    ]


def pynvml_of(gpus: Sequence[FakeGpu], *, runs: int = 13000) -> ModuleType:
    """Only the calls that we make; anything else is an AttributeError, as with an old version."""

    def by_index(index: int) -> FakeGpu:
        if gpus[index].forbidden:
            raise NVMLError("Insufficient Permissions")
        return gpus[index]

    def by_uuid(uuid: str) -> FakeGpu:
        return next(gpu for gpu in gpus if gpu.uuid == uuid and not gpu.forbidden)

    def mig(gpu: FakeGpu) -> list[int]:
        if gpu.capability < (8, 0):
            raise NVMLError("Not Supported")
        return [int(gpu.mig), int(gpu.mig)]

    def affinity(gpu: FakeGpu, words: int) -> list[int]:
        return [sum(1 << core % 64 for core in gpu.cores if core // 64 == word) for word in range(words)]

    module = ModuleType("pynvml")
    calls: dict[str, Callable[..., Any]] = {
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "580.95",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: runs,
        "nvmlDeviceGetCount": lambda: len(gpus),
        "nvmlDeviceGetHandleByIndex": by_index,
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetName": lambda gpu: gpu.name,
        "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
        "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(
            total=gpu.memory_bytes, used=sum(gpu.processes.values())
        ),
        "nvmlDeviceGetPciInfo": lambda gpu: SimpleNamespace(busId=gpu.bus.encode()),
        "nvmlDeviceGetComputeMode": lambda gpu: gpu.compute_mode,
        "nvmlDeviceGetMigMode": mig,
        "nvmlDeviceGetCudaComputeCapability": lambda gpu: gpu.capability,
        "nvmlDeviceGetNvLinkState": lambda gpu, link: int(link < gpu.links),
        "nvmlDeviceGetNvLinkRemoteDeviceType": lambda gpu, link: 2 if gpu.to_switch else 0,
        "nvmlDeviceGetP2PStatus": lambda one, other, what: 5 if other.uuid in one.unreachable else 0,
        "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [
            SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in gpu.processes.items()
        ],
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: gpu.throttling,
        "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: int(1000 * gpu.power_w),
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda gpu: 700_000,
        "nvmlDeviceGetCpuAffinity": affinity,
    }
    for name, call in calls.items():
        setattr(module, name, call)
    module.NVMLError = NVMLError  # type: ignore[attr-defined]
    return module


def install(
    monkeypatch: pytest.MonkeyPatch, gpus: Sequence[FakeGpu], *, visible: str | None = None, runs: int = 13000
) -> None:
    """These GPUs are the machine's, with a torch that can use them. `runs`: the CUDA of the driver."""
    monkeypatch.setitem(sys.modules, "pynvml", pynvml_of(gpus, runs=runs))
    monkeypatch.setattr(cuda, "torch_cuda", lambda: "13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(cuda, "machine", nvml.machine.__wrapped__)  # read anew each time
