"""What the two GPU platforms share: finding the GPU, its facts, and the environment of ranks."""

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pkb.types.errors import UserError

NCCL_NEEDED = (2, 30)
HOW_TO_GET_NCCL = (
    "several ranks on one GPU need NCCL 2.30 or newer: `pip download --no-deps nvidia-nccl-cu13` on any machine, unzip "
    "nvidia/nccl/lib/libnccl.so.2 from the wheel and point PKB_NCCL at it (tools/prepare_nccl.py makes a small one for a "
    "machine without a network)"
)


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


def nccl_candidates() -> list[Path]:
    """Places where an NCCL may lie, the user's own first."""
    paths = [Path(os.environ["PKB_NCCL"])] if os.environ.get("PKB_NCCL") else []
    paths.append(Path.home() / ".cache" / "pkb" / "nccl" / "libnccl.so.2")
    try:
        import torch

        root = Path(torch.__file__).parent.parent
        paths += sorted(root.glob("nvidia/nccl/lib/libnccl.so.2"))
    except ImportError:
        pass
    return [path for path in paths if path.is_file()]


def nccl_version(path: Path) -> tuple[int, int, int]:
    """Ask a library for its version, in this process: loading it has no effect on CUDA."""
    version = ctypes.c_int()
    if ctypes.CDLL(str(path)).ncclGetVersion(ctypes.byref(version)):
        raise UserError(f"{path} does not answer ncclGetVersion", HOW_TO_GET_NCCL)
    return version.value // 10000, version.value // 100 % 100, version.value % 100


@cache
def suitable_nccl() -> Path | None:
    """The first NCCL that lets several ranks share a GPU."""
    for path in nccl_candidates():
        try:
            if nccl_version(path)[:2] >= NCCL_NEEDED:
                return path
        except (OSError, UserError):
            continue
    return None


def cuda_environment() -> dict[str, str]:
    """Common to `virtual` and `node`: loopback rendezvous, and compilers told which architecture to build for."""
    keep = ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
    return {name: os.environ[name] for name in keep if name in os.environ} | {
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_DEBUG": "WARN",
        "OMP_NUM_THREADS": "1",
    }
