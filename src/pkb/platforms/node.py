"""A GPU for each rank, joined by NVLink: the machine the benchmark is about. All code but the placement is `virtual`'s."""

import os

from pkb.platforms.base import Platform, PlatformFacts
from pkb.platforms.conditions import conditions, has_multicast
from pkb.platforms.cuda import cuda_environment, gpus, visible_environment, why_no_gpu, why_not_compute_mode
from pkb.platforms.nvml import Gpu, cores_near, memory_in_use

MEMORY_SHARE = 0.45
"""Of each GPU's memory that a candidate's rank may take; the oracle's rank is on the same GPU."""


class NodePlatform(Platform):
    name = "node"
    device = "cuda"
    backend = "cpu:gloo,cuda:nccl"
    default_size = "paper"
    shares_device = False
    times = "a GPU per rank"
    note = ""
    private_shm = True
    fewest_gpus = 2

    def gpus(self, world_size: int | None = None) -> list[Gpu]:
        """Of the visible ones those of one kind, that of the first: ranks of different speeds would wait for each other."""
        found = gpus()
        return [gpu for gpu in found if gpu.name == found[0].name][:world_size]

    def facts(self) -> PlatformFacts:
        found = self.gpus()
        few = f"needs at least {self.fewest_gpus} GPUs of one kind, {len(found)} visible"
        why_not = (
            why_no_gpu()
            or (few if len(found) < self.fewest_gpus else "")
            or why_not_compute_mode(found, processes=2)  # the oracle's rank and the candidate's
        )
        return PlatformFacts(
            name=self.name,
            shares_device=self.shares_device,
            available=not why_not,
            why_not=why_not,
            hardware=f"{len(found)}x {found[0].name}" if found else "",
            max_ranks=len(found),
            capabilities=("torch", "triton", "cuda", "cpp", *(("multicast",) if has_multicast(found) else ())),
            memory_bytes=sum(gpu.memory_bytes for gpu in found),
            architecture=found[0].architecture if found else "",
        )

    def environment(self, world_size: int) -> dict[str, str]:
        return self.import_environment() | visible_environment(self.gpus(world_size))

    def import_environment(self) -> dict[str, str]:
        return cuda_environment()

    def candidate_environment(self, world_size: int) -> dict[str, str]:
        """torch's allocator keeps to it; what a candidate takes past it is found out when the oracle runs out of memory."""
        return {"PKB_GPU_MEMORY_SHARE": str(MEMORY_SHARE)}

    def device_indices(self, world_size: int) -> list[int]:
        return list(range(world_size))

    def devices(self, world_size: int) -> list[str]:
        return [gpu.uuid for gpu in self.gpus(world_size)]

    def cores(self, world_size: int) -> list[tuple[int, ...]]:
        ours = os.sched_getaffinity(0)
        near = [cores_near(gpu, max(ours) + 1) for gpu in self.gpus(world_size)]
        return [tuple(core for core in cores if core in ours) for cores in near]

    def conditions(self, world_size: int) -> dict[str, str]:
        return conditions(self.gpus(world_size))

    def memory_in_use(self, world_size: int) -> list[int]:
        return memory_in_use(self.gpus(world_size))

    def memory_share(self) -> int:
        return int(MEMORY_SHARE * self.gpus(1)[0].memory_bytes)
