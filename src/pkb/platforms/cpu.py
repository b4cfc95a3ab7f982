"""Ranks are processes on the CPU; symmetric memory is shared memory, collectives are gloo's."""

import importlib.util
import os
import platform as host

import psutil

from pkb.kit.emulated.gxx import find_gxx
from pkb.platforms.base import EMULATED_CUDA, Platform, PlatformFacts

MAX_RANKS = 8


SEED = "PKB_EMULATOR_SEED"
"""Of the emulated GPU's schedule: what a person chooses by `pkb eval --seed`."""


def emulator_seed() -> int | None:
    chosen = os.environ.get(SEED)
    return int(chosen) if chosen else None


class CpuPlatform(Platform):
    name = "cpu"
    device = "cpu"
    backend = "gloo"
    default_size = "tiny"
    shares_device = True
    times = "ranks share one CPU; says nothing about GPUs or NVLink"
    note = "ranks share one CPU: right or wrong is meaningful, times say nothing about GPUs or NVLink"
    private_shm = True

    def facts(self) -> PlatformFacts:
        capabilities = ["torch", "cpp"]
        if importlib.util.find_spec("triton") is not None:
            capabilities.append("triton")
        compiler = find_gxx()
        if not isinstance(compiler, str):
            capabilities.append(EMULATED_CUDA)
            if os.environ.get("PKB_NVLS") == "1":
                capabilities.append("multicast")
        return PlatformFacts(
            name=self.name,
            shares_device=self.shares_device,
            available=os.name == "posix" and host.system() == "Linux",
            why_not="" if host.system() == "Linux" else "ranks need Linux (memfd, namespaces)",
            hardware=f"{os.cpu_count()} cores, {host.machine()}",
            max_ranks=MAX_RANKS,
            capabilities=tuple(capabilities),
            memory_bytes=psutil.virtual_memory().available,
            without_cuda=compiler if isinstance(compiler, str) else "",
        )

    def environment(self, world_size: int) -> dict[str, str]:
        return self.import_environment()

    def import_environment(self) -> dict[str, str]:
        return {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}

    def candidate_environment(self, world_size: int) -> dict[str, str]:
        """What a person chooses of the emulated GPU: the seed of its schedule."""
        return {name: os.environ[name] for name in (SEED,) if name in os.environ}

    def device_indices(self, world_size: int) -> list[int]:
        return [0] * world_size

    def memory_limit_bytes(self) -> int:
        return psutil.virtual_memory().available // 2
