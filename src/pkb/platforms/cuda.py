"""What the two GPU platforms share: finding the GPU, its facts, and the environment of ranks."""

import os
from dataclasses import dataclass
from functools import cache

from pkb.platforms.nccl import torch_cuda


@dataclass(frozen=True)
class Gpu:
    name: str
    memory_bytes: int
    driver: str
    multicast: bool


@cache
def gpus() -> tuple[Gpu, ...]:
    """The machine's NVIDIA GPUs by NVML, without making a CUDA context in this process."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    found = []
    driver = str(pynvml.nvmlSystemGetDriverVersion())
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        found.append(Gpu(str(pynvml.nvmlDeviceGetName(handle)), int(memory.total), driver, False))
    return tuple(found)


def why_no_gpu() -> str:
    """What stands in the way of any rank on a GPU; empty if nothing does."""
    if not gpus():
        return "no NVIDIA GPU is visible (nvidia-ml-py and the driver are needed to look)"
    if not torch_cuda():
        return (
            "torch is a CPU build here: `make clean`, then `make demo` with the GPU there, or install torch from PyPI"
        )
    return ""


def cuda_environment() -> dict[str, str]:
    """Common to `virtual` and `node`: loopback rendezvous, and compilers told which architecture to build for."""
    keep = ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
    return {name: os.environ[name] for name in keep if name in os.environ} | {
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_IB_DISABLE": "1",  # one machine needs no adapter, and ranks cannot open one
        "NCCL_DEBUG": "WARN",
        "OMP_NUM_THREADS": "1",
    }
