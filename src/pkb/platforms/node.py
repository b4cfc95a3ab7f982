"""A GPU for each rank, joined by NVLink: the machine the benchmark is about. All code but the placement is `virtual`'s."""

from pkb.platforms.base import PlatformFacts
from pkb.platforms.cuda import cuda_environment, gpus, why_no_gpu


class NodePlatform:
    name = "node"
    device = "cuda"
    backend = "cpu:gloo,cuda:nccl"
    default_size = "paper"
    shares_device = False
    times = "a GPU per rank"
    note = ""
    private_shm = True

    def facts(self) -> PlatformFacts:
        found = gpus()
        why_not = f"needs at least 2 GPUs, {len(found)} found" if len(found) < 2 else why_no_gpu()
        return PlatformFacts(
            name=self.name,
            shares_device=self.shares_device,
            available=not why_not,
            why_not=why_not,
            hardware=f"{len(found)}x {found[0].name}" if found else "",
            max_ranks=len(found),
            capabilities=("torch", "triton", "cuda", "cpp", "multicast"),
            memory_bytes=sum(gpu.memory_bytes for gpu in found),
        )

    def start(self) -> None:
        return

    def stop(self) -> None:
        return

    def environment(self, world_size: int) -> dict[str, str]:
        return cuda_environment()

    def candidate_environment(self, world_size: int) -> dict[str, str]:
        return {}

    def device_indices(self, world_size: int) -> list[int]:
        return list(range(world_size))

    def memory_limit_bytes(self) -> int:
        import psutil

        return psutil.virtual_memory().available * 3 // 4

    def readable(self) -> list[str]:
        return []

    def writable(self) -> list[str]:
        return []
