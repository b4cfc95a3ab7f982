"""What one side is started with: read by its warden, and in a way the first command, which every rank answers by `Ready`."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pkb.types.protocol.codec import AtMost, Between
from pkb.types.protocol.commands import Command, PathText, Seconds
from pkb.types.protocol.limits import MAX_RANKS
from pkb.types.protocol.replies import Ready
from pkb.types.protocol.trees import Name

Role = Literal["oracle", "candidate"]
Variables = Annotated[dict[Name, Annotated[str, AtMost(1 << 16)]], AtMost(200)]
Paths = Annotated[tuple[PathText, ...], AtMost(1000)]
Descriptor = Annotated[int, Between(0, 1 << 20)]
Descriptors = Annotated[tuple[Descriptor, ...], AtMost(MAX_RANKS)]
Bytes = Annotated[int, Between(0, 1 << 62)]


@dataclass(frozen=True)
class OracleOptions:
    role: ClassVar[Role] = "oracle"

    secret: Annotated[str, AtMost(64)]
    """In hexadecimal: what arguments are drawn from."""
    problems_folder: PathText | None = None
    collective_timeout_s: Seconds = 600.0


@dataclass(frozen=True)
class CandidateOptions:
    role: ClassVar[Role] = "candidate"

    readable: Paths
    writable: Paths
    """Folders of services that ranks need to start; covered before the candidate is loaded."""
    max_file_bytes: Bytes
    collective_timeout_s: Seconds


@dataclass(frozen=True)
class SideSettings(Command[Ready]):
    options: OracleOptions | CandidateOptions
    world_size: Annotated[int, Between(1, MAX_RANKS)]
    shares_device: bool
    """Ranks share one device: a candidate that asks for the device of its rank number gets that one."""
    device: Name
    device_indices: Annotated[tuple[Annotated[int, Between(0, 1000)], ...], AtMost(MAX_RANKS)]
    cores: Annotated[
        tuple[Annotated[tuple[Annotated[int, Between(0, 1 << 16)], ...], AtMost(1 << 16)], ...], AtMost(MAX_RANKS)
    ]
    """By rank, those it stays on; none where it may use all."""
    backend: Name
    folder: PathText
    """Private to this side: rendezvous file, symmetric memory, temporary files."""
    preload_triton: bool
    timed: bool
    """If not, a host that waits for its GPU sleeps, and leaves its core to other evaluations."""
    channels: Descriptors
    stacks: Descriptors
    """By rank, where it writes its stack on a signal."""
    status: Descriptor
    exits: Descriptor
    """Where the end of each rank is told."""
    shm_bytes: Bytes | None
    """Of a /dev/shm of the side's own. None: ranks start with the machine's, and a candidate's get another at the gate."""
    tmp_bytes: Bytes | None
    max_processes: Annotated[int, Between(1, 1 << 31)] | None

    @property
    def role(self) -> Role:
        return self.options.role


@dataclass(frozen=True)
class ForkedWarden:
    """What makes a warden that was forked by a template what it would be, had it been executed: only the child reads it."""

    environment: Variables
    """What the template's own lacks."""
    folder: PathText
    cores: Annotated[tuple[Annotated[int, Between(0, 1 << 16)], ...], AtMost(1 << 16)]
    descriptors: Annotated[tuple[Descriptor, ...], AtMost(2 * MAX_RANKS + 8)]
    """The numbers that `SideSettings` knows them by, in the order in which they come."""
    settings: Descriptor
