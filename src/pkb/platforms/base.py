"""What the judge needs to know of a platform. One file a platform; a new one is a new file."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

EMULATED_CUDA = "emulated cuda"
"""CUDA candidates run, on an emulated GPU: right or wrong is meaningful, times are not taken."""


@dataclass(frozen=True)
class PlatformFacts:
    """What this machine offers of a platform."""

    name: str
    available: bool
    why_not: str = ""
    """What is missing and how to get it; empty if available."""
    hardware: str = ""
    max_ranks: int = 0
    capabilities: tuple[str, ...] = ()
    """Of: torch, triton, cuda, emulated cuda, cpp, multicast."""
    memory_bytes: int = 0
    """Of all devices together; ranks of both sides share it."""
    shares_device: bool = True
    """Whether all ranks run on one device, as opposed to one each."""
    architecture: str = ""
    """Of its GPUs, as compilers are told: `9.0a`."""
    nccl_home: str = ""
    """Folder with the `include` of the NCCL that ranks load in the place of torch's; empty where there is none."""
    without_cuda: str = ""
    """What to install so that CUDA candidates run on an emulated GPU; empty where they run."""

    def memory_for(self, ranks: int) -> int:
        """What so many ranks have: with a device each, the memory of devices that no rank uses does not help."""
        return self.memory_bytes if self.shares_device else self.memory_bytes * ranks // max(1, self.max_ranks)


@dataclass(frozen=True)
class PlatformTraits:
    """What a platform is, on whatever machine: for those who read a stored verdict and know the platform by its name only."""

    name: str
    device: str
    shares_device: bool
    times: str
    note: str

    @property
    def shares_gpu(self) -> bool:
        return self.device == "cuda" and self.shares_device

    @property
    def taken(self) -> str:
        return f"taken on {self.name}" + (f": {self.times}" if self.times else "")


class Platform(ABC):
    """Places ranks and says what they run on. What not every platform has to say has a default."""

    name: str
    device: str
    """`cpu` or `cuda`."""
    backend: str
    """torch.distributed backend of both sides."""
    default_size: str
    """The size that is judged where none is asked for."""
    shares_device: bool
    """Whether all ranks run on one device: times then say nothing about the links between devices."""
    times: str
    """What a time taken here means, in a few words, wherever one is shown."""
    note: str
    """What a time taken here does not say, kept with the verdict."""
    private_shm: bool
    """May each side start with a /dev/shm of its own? Else a candidate's gets one before the candidate is loaded."""

    @abstractmethod
    def facts(self) -> PlatformFacts: ...

    def start(self) -> None:
        return

    def stop(self) -> None:
        return

    @abstractmethod
    def import_environment(self) -> dict[str, str]:
        """What of the environment a library may read while it is imported: the same for all sides, and known before `start`."""

    @abstractmethod
    def environment(self, world_size: int) -> dict[str, str]:
        """All of it, with what only a running rank reads."""

    @abstractmethod
    def candidate_environment(self, world_size: int) -> dict[str, str]: ...

    @abstractmethod
    def device_indices(self, world_size: int) -> list[int]: ...

    def devices(self, world_size: int) -> list[str]:
        """Those that so many ranks measure on, each by a name that does not depend on how it was asked for; none on a CPU,
        where cores are shared out instead."""
        return []

    def cores(self, world_size: int) -> list[tuple[int, ...]]:
        """By rank, the cores near its device; empty where that makes no difference."""
        return []

    def conditions(self, world_size: int) -> dict[str, str]:
        """What of these devices bears on a measurement: kept with the verdict."""
        return {}

    def memory_in_use(self, world_size: int) -> list[int]:
        """Bytes of each device that are taken now, by whomever; empty where nothing can take more than its share."""
        return []

    def memory_share(self) -> int:
        """Bytes of each device that a candidate's rank may take, where `memory_in_use` says what is taken."""
        return 0

    def memory_limit_bytes(self) -> int:
        """Of the host, for all ranks of a candidate together."""
        import psutil

        return psutil.virtual_memory().available * 3 // 4

    def readable(self) -> list[str]:
        """What ranks need beside the usual."""
        return []

    def writable(self) -> list[str]:
        """What ranks need to start, and what a candidate must not reach."""
        return []
