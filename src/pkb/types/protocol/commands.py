"""What a rank is told. `Command[R]` says which replies answer it; an `ErrorReport` may answer any."""

import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Generic, Literal, TypeVar

from pkb.types.protocol.codec import AtMost, Between
from pkb.types.protocol.limits import KIB, MAX_CALLS, MAX_RANKS, MIB
from pkb.types.protocol.replies import (
    ArgumentsReply,
    BadOutput,
    BatchReport,
    Company,
    Comparison,
    Done,
    ErrorReport,
    LintRows,
    MemoryPeak,
    Microseconds,
    Opened,
    OutputReply,
    ProbeOpened,
    ProbeRows,
    RecordingReply,
    Reply,
    Slot,
    TruthSizes,
)
from pkb.types.protocol.trees import Name, Node
from pkb.types.stock import StockFunction

R = TypeVar("R", bound=Reply, covariant=True)
COMMAND_BYTES = 4 * MIB
PathText = Annotated[str, AtMost(4096)]
Slots = Annotated[tuple[Slot, ...], AtMost(MAX_CALLS)]
Seconds = Annotated[float, Between(0, 10**6)]
KEY_BYTES = 32
Key = Annotated[str, AtMost(2 * KEY_BYTES)]
"""In hexadecimal; empty where nothing is sealed."""


class Command(Generic[R]):
    replies: ClassVar[tuple[type[Reply], ...]] = ()

    def __init_subclass__(cls) -> None:
        (answer,) = (typing.get_args(base)[0] for base in cls.__orig_bases__)  # type: ignore[attr-defined]
        cls.replies = typing.get_args(answer) if isinstance(answer, types.UnionType) else (answer,)

    def reply_limits(self) -> dict[type[Reply], int]:
        """The replies that may come, and how many bytes of each."""
        return {kind: self.reply_bytes(kind) for kind in (*self.replies, ErrorReport)}

    def reply_bytes(self, kind: type[Reply]) -> int:
        return kind.most_bytes

    def why_not(self, reply: Reply) -> str:
        """Why this reply, though well formed, is no answer to this command; empty if it is one."""
        return ""


@dataclass(frozen=True)
class DrawSpec:
    """What arguments are drawn for."""

    problem: Name
    size: Name
    dtype: Name
    upstream: bool = False
    """Compared by the tolerances of the original benchmark."""
    kind: Name = ""
    """Of the problem's kinds of calls; empty leaves it to the secret."""
    even: bool = False
    """Every rank holds as much as any other, and calls differ in values alone."""
    as_published: bool = False
    """Drawn evenly, of the published benchmark's kind; compared by what is returned alone, whatever its dtype."""


@dataclass(frozen=True)
class Schedule:
    """How one batch is run."""

    slots: Slots
    """The argument sets, in the order they are called."""
    together: bool = True
    """No rank begins the batch before all have been told to."""
    aligned: bool = False
    """All ranks start each call together, caches are cold, and the call is stamped."""
    late_host_us: Annotated[tuple[Microseconds, ...], AtMost(MAX_CALLS)] = ()
    """How long this rank sleeps before each call; empty for not at all."""
    late_device_us: Annotated[tuple[Microseconds, ...], AtMost(MAX_CALLS)] = ()
    """How long this rank's device is kept busy before each call."""
    held: bool = False
    """On an emulated GPU single threads stop for a while between what they tell others."""
    overwrite: bool = False
    """Arguments are overwritten straight after each return, in stream order."""
    cover_us: Microseconds = 0.0
    """How long the device is kept busy before an aligned call, so that the host has queued all of it when it starts: the time
    of a call is then the device's, not that of launching."""
    digests: bool = False
    """The report commits to the outputs of all calls."""
    key: Key = ""
    """Opens the arguments of these slots, and goes into the digests: whoever is told to run a batch learns it then."""
    empty: bool = False
    """All of it but the calls, on slots that have been run before: to know what the rest costs. The oracle's only."""
    copies: bool = False
    """Each result is copied before the next call, in stream order, and behind its delays: used as late as it is safe."""
    barrier_timeout_s: Seconds = 60.0

    @property
    def stamped(self) -> int:
        """Calls whose times are reported."""
        return len(self.slots) if self.aligned else 0


# -- both sides --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Open(Command[Opened]):
    """Make the groups of a layout, and say what the device is."""

    name: Name
    layout: Annotated[
        dict[
            Name,
            Annotated[
                tuple[Annotated[tuple[Annotated[int, Between(0, MAX_RANKS)], ...], AtMost(MAX_RANKS)], ...],
                AtMost(MAX_RANKS),
            ],
        ],
        AtMost(16),
    ]
    """By axis, the groups of ranks."""
    mutates: Annotated[tuple[Name, ...], AtMost(MAX_RANKS)] = ()
    """Arguments that a solution changes in place."""
    returns_input: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        layout: Mapping[str, Iterable[Iterable[int]]],
        *,
        mutates: Iterable[str] = (),
        returns_input: bool = False,
    ) -> "Open":
        groups = {axis: tuple(map(tuple, partition)) for axis, partition in layout.items()}
        return cls(name, groups, tuple(mutates), returns_input)


@dataclass(frozen=True)
class RunBatch(Command[BatchReport]):
    schedule: Schedule
    inspect: bool = False
    """Look for arguments that were changed, and results that share their memory or lie in a peer's."""
    profile: bool = False
    """Look for a library's kernels among what ran on the device."""
    records: bool = False
    """Report everything that ran on the device."""
    function: StockFunction = "reference"
    """Which of the problem's own is run. The oracle's only: a candidate has one function."""

    def reply_bytes(self, kind: type[Reply]) -> int:
        if kind is not BatchReport:
            return kind.most_bytes
        calls = len(self.schedule.slots)
        asked = calls * (256 + 64 * KIB * self.schedule.digests + 8 * KIB * self.inspect)
        return min(BatchReport.most_bytes, 24 * KIB + asked + 3 * MIB // 2 * self.records)

    def why_not(self, reply: Reply) -> str:
        assert isinstance(reply, BatchReport)
        calls, stamped = len(self.schedule.slots), self.schedule.stamped
        expected = {
            "calls": stamped,
            "host_us": stamped,
            "digests": calls * self.schedule.digests,
            "changed": calls * self.inspect,
            "aliases": calls * self.inspect,
            "borrowed": calls * self.inspect,
            "reused": calls * self.schedule.copies,
        }
        for name, count in expected.items():
            if len(getattr(reply, name)) != count:
                return f"{name} of {len(getattr(reply, name))} calls, {count} expected"
        if (reply.activity is not None) != self.records:
            return "records of the device missing" if self.records else "records of the device unasked"
        return ""


@dataclass(frozen=True)
class Wake(Command[Done]):
    """A kernel or two of our own, so that no rank has to wake up in what is measured next."""


@dataclass(frozen=True)
class Drop(Command[Done]):
    """Let go of arguments, outputs and truths."""

    keep_memory: bool = False


# -- the candidate's side ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load(Command[Done]):
    """Import the candidate."""

    path: PathText
    seed: Annotated[int, Between(0, (1 << 31) - 1)] | None = None
    """With one, what it does to memory is recorded from here on, as `BeginRecording` says; the same files come with it."""


@dataclass(frozen=True)
class GiveArguments(Command[Done]):
    """Arguments of one call, whose bytes come with it."""

    slot: Slot
    tree: Node


@dataclass(frozen=True)
class FetchOutput(Command[OutputReply | BadOutput]):
    slot: Slot

    def why_not(self, reply: Reply) -> str:
        assert isinstance(reply, OutputReply | BadOutput)
        return "" if reply.slot == self.slot else f"the output of call {reply.slot} for {self.slot}"


@dataclass(frozen=True)
class Poison(Command[Done]):
    """Fill symmetric memory with NaN."""


@dataclass(frozen=True)
class BeginRecording(Command[RecordingReply]):
    """From now on, write what calls do to memory into a log: two files come with it, the ranks' common counter and the log of
    this rank."""

    seed: Annotated[int, Between(0, (1 << 31) - 1)]
    """Of the emulated GPU's schedule."""
    weak: bool = False
    """Kernels run in weak execution (`WeakExecution`), and the log does not matter."""


@dataclass(frozen=True)
class EndRecording(Command[RecordingReply]):
    """The log is complete. Its bytes are in the judge's file already."""


# -- the oracle's side -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DrawArguments(Command[ArgumentsReply]):
    spec: DrawSpec
    slot: Slot
    keep: bool
    """The oracle will run this call too."""
    key: Key
    """Seals the arguments, those that are kept as well."""

    def why_not(self, reply: Reply) -> str:
        assert isinstance(reply, ArgumentsReply)
        return "" if reply.slot == self.slot else f"arguments of call {reply.slot} for {self.slot}"


@dataclass(frozen=True)
class DrawOnly(Command[Done]):
    """Arguments for the oracle itself, which nobody else gets."""

    spec: DrawSpec
    slot: Slot


@dataclass(frozen=True)
class FindTruth(Command[TruthSizes]):
    slots: Slots


@dataclass(frozen=True)
class Compare(Command[Comparison]):
    """Compare a candidate's output, whose bytes come with it, with the truth."""

    slot: Slot
    tree: Node


@dataclass(frozen=True)
class CheckBaseline(Command[Comparison]):
    """Run the problem's baseline on these calls, in a row, and compare as a candidate is compared. The worst of them."""

    spec: DrawSpec
    slots: Slots
    function: StockFunction = "baseline"


@dataclass(frozen=True)
class CheckExact(Command[Comparison]):
    """Compare the problem's `exact` truth of one call with the reference's."""

    spec: DrawSpec
    slot: Slot


@dataclass(frozen=True)
class Release(Command[Done]):
    """Let go of arguments that have been run."""


@dataclass(frozen=True)
class Forget(Command[Done]):
    """Let go of one truth."""

    slot: Slot


@dataclass(frozen=True)
class LookForCompany(Command[Company]):
    """Is anybody else at work on the device?"""


@dataclass(frozen=True)
class MeasureMemory(Command[MemoryPeak]):
    reset: bool


@dataclass(frozen=True)
class Lint(Command[LintRows]):
    spec: DrawSpec


@dataclass(frozen=True)
class Effort:
    """How thoroughly the probe takes one time."""

    repeats: Annotated[int, Between(1, 1000)]
    batch_ms: Annotated[float, Between(0, 10_000)]
    """A batch lasts about this long, if its calls are short enough."""
    most_calls: Annotated[int, Between(1, 100_000)]
    """Per batch: a GPU's queue holds about a thousand launches, and queueing more would block the host."""


Crowd = Literal["alone", "together"]
"""Rank 0, or all ranks."""
Pattern = Literal["pair", "ring"]
"""Rank 1 to rank 0, or each rank from the next, all at once."""
Sizes = Annotated[tuple[Annotated[int, Between(0, 1 << 50)], ...], AtMost(100)]


@dataclass(frozen=True)
class ProbeOpen(Command[ProbeOpened]):
    effort: Effort
    half_bytes: Annotated[int, Between(1, 1 << 40)]
    dtypes: Annotated[tuple[Name, ...], AtMost(64)]


@dataclass(frozen=True)
class ProbeMatrix(Command[ProbeRows]):
    dtype: Name
    sides: Sizes
    who: Crowd


@dataclass(frozen=True)
class ProbeMemory(Command[ProbeRows]):
    nbytes: Annotated[int, Between(1, 1 << 50)]
    cached_bytes: Annotated[int, Between(0, 1 << 50)]
    who: Crowd


@dataclass(frozen=True)
class ProbeLink(Command[ProbeRows]):
    way: Name
    sizes: Sizes
    blocks: Sizes
    who: Pattern


@dataclass(frozen=True)
class ProbeLatency(Command[ProbeRows]):
    pass


CANDIDATE_COMMANDS: tuple[type[Command[Reply]], ...] = (
    Open, Load, GiveArguments, RunBatch, FetchOutput, Poison, BeginRecording, EndRecording, Wake, Drop,
)  # fmt: skip
ORACLE_COMMANDS: tuple[type[Command[Reply]], ...] = (
    Open, DrawArguments, DrawOnly, FindTruth, RunBatch, Compare, Release, Forget, Wake, Drop, LookForCompany,
    MeasureMemory, Lint, CheckBaseline, CheckExact, ProbeOpen, ProbeMatrix, ProbeMemory, ProbeLink, ProbeLatency,
)  # fmt: skip
