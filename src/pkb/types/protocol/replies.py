"""What a rank says. Each kind has a size that its bytes may not exceed, and says whether a file comes with it.

Of the oracle's ranks these are results, of a candidate's they are claims.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pkb.types.difference import DifferenceKind, Pattern
from pkb.types.failure import Cause
from pkb.types.protocol.codec import AtMost, Between
from pkb.types.protocol.limits import (
    KIB,
    MAX_CALLS,
    MAX_DIMENSIONS,
    MAX_ELEMENTS,
    MAX_INSTRUCTIONS,
    MAX_KERNEL_NAMES,
    MAX_NAME,
    MAX_NODES,
    MAX_NS,
    MAX_RANKS,
    MAX_RECORDS,
    MAX_TEXT,
    MAX_TRACE,
    MIB,
    clean,
)
from pkb.types.protocol.trees import Name, Node, check_size

FACT_TEXT = 300
Slot = Annotated[int, Between(0, 1 << 53)]
Count = Annotated[int, Between(0, 1 << 53)]
Sentence = Annotated[str, AtMost(600)]
Facts = Annotated[dict[Name, Annotated[str, AtMost(FACT_TEXT)]], AtMost(64)]
Nanoseconds = Annotated[int, Between(-(1 << 62), 1 << 62)]
"""On a clock whose zero is its owner's; which differences make sense is the judge's question."""
Microseconds = Annotated[float, Between(0, 10**13)]
Stamps = tuple[Nanoseconds, Nanoseconds, Nanoseconds]
"""Start and end of a call in stream order, and when the whole device was idle."""
Digests = Annotated[tuple[Annotated[str, AtMost(64)], ...], AtMost(MAX_NODES)]
"""Of one output, by tensor: a commitment to its bytes."""


def facts(known: Mapping[str, object]) -> dict[str, str]:
    """What fits into a message's facts."""
    return {clean(str(name), MAX_NAME): clean(str(value), FACT_TEXT) for name, value in known.items()}


class Reply:
    most_bytes: ClassVar[int] = 4 * KIB
    descriptors: ClassVar[int] = 0
    kept_files: ClassVar[bool] = False
    """These may be files that their writer uses again: of the oracle's replies only."""


@dataclass(frozen=True)
class Done(Reply):
    """The command has been carried out, and there is nothing to say about it."""


@dataclass(frozen=True)
class ErrorReport(Reply):
    """An exception; may answer any command."""

    most_bytes = 128 * KIB

    type: Name
    message: Annotated[str, AtMost(MAX_TEXT)]
    trace: Annotated[str, AtMost(MAX_TRACE)]
    """From the first frame that is not the harness's."""
    line: Annotated[int, Between(0, 1 << 31)] | None
    cause: Cause
    at_ns: Nanoseconds
    """When, on the clock that all processes share."""


# -- starting ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready(Reply):
    most_bytes = 32 * KIB

    isolation: Facts
    """Every layer of it: said while the process runs no line of the candidate's."""
    opened: Annotated[dict[Name, float], AtMost(16)]
    """When each part of the start was over, on the clock that all processes share."""


@dataclass(frozen=True)
class Opened(Reply):
    most_bytes = 32 * KIB

    facts: Facts


# -- calls -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArgumentsReply(Reply):
    """Arguments of one call, their bytes in a file beside the message."""

    most_bytes = 2 * MIB
    descriptors = 1
    kept_files = True

    slot: Slot
    tree: Node

    def __post_init__(self) -> None:
        check_size(self.tree)


@dataclass(frozen=True)
class OutputReply(Reply):
    """The output of one call, its bytes in a file beside the message."""

    most_bytes = 2 * MIB
    descriptors = 1

    slot: Slot
    tree: Node

    def __post_init__(self) -> None:
        check_size(self.tree)


@dataclass(frozen=True)
class BadOutput(Reply):
    """An output that holds what may not be passed between ranks."""

    slot: Slot
    message: Sentence


Fidelity = Literal["exact", "approximate", "order not modelled"]


@dataclass(frozen=True)
class Observed:
    """What moved the data while a batch ran, by the rank's own account."""

    collectives: Count
    symmetric: Count
    """How often memory of a peer was handed out, since the beginning."""
    library_events: Annotated[dict[Name, Count], AtMost(8)]
    peer_copies: Count
    profiled: bool
    instructions: Annotated[dict[Name, Fidelity], AtMost(MAX_INSTRUCTIONS)] = field(default_factory=dict)
    """Executed so far on an emulated GPU, with how well each is modelled."""


RecordRow = tuple[
    Annotated[int, Between(0, MAX_KERNEL_NAMES - 1)],
    Literal["kernel", "memcpy", "memset"],
    Annotated[int, Between(0, MAX_NS)],
    Annotated[int, Between(0, MAX_NS)],
    Annotated[int, Between(0, MAX_NS)],
    Annotated[int, Between(0, 1 << 50)] | None,
]
"""Number of the name, kind, start and duration in ns, stream, bytes. Bytes are None where the profiler does not say."""


@dataclass(frozen=True)
class Activity:
    """Kernels, copies and fills in the order of their starts, which count from the first of them."""

    names: Annotated[tuple[Name, ...], AtMost(MAX_KERNEL_NAMES)] = ()
    records: Annotated[tuple[RecordRow, ...], AtMost(MAX_RECORDS)] = ()
    left_out: Count = 0
    began_ns: Annotated[int, Between(0, (1 << 63) - 1)] = 0
    """When the first of them began, by the host's clock; 0 where the profiler does not say."""

    def __post_init__(self) -> None:
        if any(record[0] >= len(self.names) for record in self.records):
            raise ValueError("a record without a name")


@dataclass(frozen=True)
class BatchReport(Reply):
    """One batch of calls; what is not asked for is left empty."""

    most_bytes = 3 * MIB  # `RunBatch.reply_bytes` says how many of them, by what it asks for

    calls: Annotated[tuple[Stamps, ...], AtMost(MAX_CALLS)]
    digests: Annotated[tuple[Digests, ...], AtMost(MAX_CALLS)]
    host_us: Annotated[tuple[Microseconds, ...], AtMost(MAX_CALLS)]
    """How long each call kept the host."""
    observed: Observed | None = None
    changed: Annotated[tuple[bool, ...], AtMost(MAX_CALLS)] = ()
    """By call: whether an argument that must stay as it is has other contents now."""
    aliases: Annotated[tuple[Annotated[tuple[Name, ...], AtMost(MAX_RANKS)], ...], AtMost(MAX_CALLS)] = ()
    """By call: arguments whose memory the result shares."""
    borrowed: Annotated[tuple[bool, ...], AtMost(MAX_CALLS)] = ()
    """By call: whether the result lies in memory of another rank."""
    reused: Annotated[tuple[bool, ...], AtMost(MAX_CALLS)] = ()
    """By call: whether the result shares memory with that of another call of the batch."""
    activity: Activity | None = None


@dataclass(frozen=True)
class RecordingReply(Reply):
    """Whether this rank records; if not, why."""

    why_not: Sentence = ""
    unknown_looks: bool = False
    """At the end: its host looked at memory of peers in which there may be flags that the recorder does not know for flags."""


# -- the oracle's ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TruthSizes(Reply):
    """The largest of the calls asked for, on this rank."""

    output_bytes: Count
    truth_bytes: Count


Element = float | Annotated[str, AtMost(8)] | None
"""A text where it is not finite."""


@dataclass(frozen=True)
class Difference:
    """How an output differs from what it must be."""

    output: Sentence
    what: Sentence
    kind: DifferenceKind
    pattern: Pattern | None = None
    amount: float | None = None
    """Of the pattern, as `Mismatch` has it."""
    argument: Name = ""
    scalars: Sentence = ""
    """The call's arguments that are no tensors."""
    first_index: Annotated[tuple[Annotated[int, Between(0, MAX_ELEMENTS)], ...], AtMost(MAX_DIMENSIONS + 1)] | None = (
        None
    )
    first_got: Element = None
    first_expected: Element = None
    differing_fraction: float | None = None
    regions: Annotated[tuple[tuple[Name, float], ...], AtMost(MAX_RANKS)] = ()
    """Parts of the first axis, each with the share of its elements that differ."""


@dataclass(frozen=True)
class Comparison(Reply):
    most_bytes = MIB

    ratio: float | None
    """Error over tolerance, the worst of all tensors; None where it is infinite or not a matter of values."""
    difference: Difference | None
    digest: Digests = ()

    @property
    def ok(self) -> bool:
        return self.difference is None


@dataclass(frozen=True)
class Company(Reply):
    """How work of ours that fills the whole device went: as expected if nobody else is there."""

    waves: Annotated[float, Between(0, 10**9)]
    """From the first start of a block to the last end, over how long a block takes: 1 if all ran at once."""
    gap_us: Annotated[float, Between(0, 10**13)]
    """The longest time in which a block did not come on."""


@dataclass(frozen=True)
class MemoryPeak(Reply):
    peak_bytes: Count


@dataclass(frozen=True)
class NullScore:
    null: Name
    ratio: float | None
    """Infinite as None."""
    note: Sentence

    @property
    def badness(self) -> float:
        return math.inf if self.ratio is None else self.ratio


@dataclass(frozen=True)
class LintRows(Reply):
    most_bytes = 64 * KIB

    rows: Annotated[tuple[NullScore, ...], AtMost(64)]


ProbeFacts = Annotated[dict[Name, bool | int | float | Sentence | None], AtMost(64)]


@dataclass(frozen=True)
class ProbeOpened(Reply):
    most_bytes = 64 * KIB

    facts: ProbeFacts
    ways: Annotated[tuple[Name, ...], AtMost(64)]
    no_product: Annotated[dict[Name, Sentence], AtMost(64)]
    """By dtype: why there is no matrix product of it here."""


@dataclass(frozen=True)
class ProbeRow:
    name: Name
    size: Count
    work: Count
    """FLOP or bytes per call."""
    us: Annotated[tuple[Microseconds, ...], AtMost(1000)]
    """Microseconds per call, one number a batch; empty on a rank that only stood by."""
    who: Name = ""
    blocks: Count | None = None


@dataclass(frozen=True)
class ProbeRows(Reply):
    most_bytes = MIB

    rows: Annotated[tuple[ProbeRow, ...], AtMost(1000)]
