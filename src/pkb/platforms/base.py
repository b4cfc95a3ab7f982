"""What the judge needs to know of a platform. One file a platform; a new one is a new file."""

from dataclasses import dataclass
from typing import Protocol


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
    """Of: torch, triton, cuda, cpp, multicast."""
    memory_bytes: int = 0
    """Memory that all ranks of both sides share (of one GPU on `node`, times the GPUs)."""


class Platform(Protocol):
    """Places ranks and says what they run on."""

    name: str
    device: str
    """`cpu` or `cuda`."""
    backend: str
    """torch.distributed backend of both sides."""
    note: str
    """What a time taken here does not say."""
    private_shm: bool
    """May each side have a /dev/shm of its own?"""

    def facts(self) -> PlatformFacts: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def environment(self, world_size: int) -> dict[str, str]: ...
    def candidate_environment(self, world_size: int) -> dict[str, str]: ...
    def device_indices(self, world_size: int) -> list[int]: ...
    def memory_limit_bytes(self) -> int: ...
    def readable(self) -> list[str]: ...
    def writable(self) -> list[str]: ...
