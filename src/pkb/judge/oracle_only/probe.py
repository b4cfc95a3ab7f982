"""Measures the machine: starts one world of trusted ranks, asks them part by part, and combines what they saw.

The time of a call that several ranks make at once is the longest of any of them; of each measurement the median over the
repeats is kept, with the shortest and the longest.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Literal, NamedTuple, TypeVar

from pkb.judge.crew.failure import CrewFailure
from pkb.judge.oracle_only.world import OracleWorld, failure_words, running
from pkb.platforms.base import Platform
from pkb.platforms.cuda import gpus
from pkb.platforms.registry import traits
from pkb.types.errors import UserError
from pkb.types.json_value import Json
from pkb.types.protocol.commands import (
    Command,
    Crowd,
    Effort,
    Pattern,
    ProbeLatency,
    ProbeLink,
    ProbeMatrix,
    ProbeMemory,
    ProbeOpen,
)
from pkb.types.protocol.replies import ProbeFacts, ProbeOpened, ProbeRows, Reply

R = TypeVar("R", bound=Reply)

PART_LIMIT_S = 90.0
OPEN_LIMIT_S = 180.0
DTYPES = ("bf16", "fp16", "tf32", "fp32", "fp64", "fp8")
KIB, MIB = 2**10, 2**20


@dataclass(frozen=True)
class Size:
    """How much is measured: a probe is quick or thorough, on a GPU or on a CPU."""

    sides: list[int]
    """Of square matrix products."""
    memory_bytes: int
    half_bytes: int
    """The largest message between ranks."""
    step: int
    """Factor from one message size to the next."""
    blocks: list[int]
    effort: Effort

    def message_sizes(self, limit: int) -> list[int]:
        sizes = [4 * KIB]
        while sizes[-1] * self.step < self.half_bytes:
            sizes.append(sizes[-1] * self.step)
        return [size for size in [*sizes, self.half_bytes] if size <= limit]


def size_for(device: str, *, quick: bool) -> Size:
    if device == "cuda" and quick:
        return Size([4096], 256 * MIB, 64 * MIB, 16, [1, 4, 16], Effort(3, 3, 100))
    if device == "cuda":
        return Size([2048, 4096, 8192], 512 * MIB, 256 * MIB, 4, [1, 2, 4, 8, 16, 32, 64], Effort(5, 10, 400))
    if quick:
        return Size([256], 16 * MIB, 4 * MIB, 16, [], Effort(3, 5, 200))
    return Size([256, 512, 1024], 64 * MIB, 16 * MIB, 4, [], Effort(5, 20, 400))


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One measurement."""

    kind: str
    """`matrix`, `memory`, `link` or `latency`."""
    name: str
    """The dtype, the access, the way between ranks, or the event."""
    who: str
    """`alone` (rank 0), `together` (all ranks), `pair` (rank 1 to rank 0) or `ring` (each rank from the next, all at once)."""
    ranks: int
    """How many ranks worked at the same time."""
    size: int
    """Side of the matrices, or bytes; 0 for latencies."""
    blocks: int | None
    time_us: float
    low_us: float
    high_us: float
    rate: float | None
    """FLOP/s or bytes/s of one rank; `ranks` times that of all together. None for latencies."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    platform: str
    ranks: int
    quick: bool
    device: str
    """Its name: of the GPU, or of the CPU."""
    driver: str
    date: str
    seconds: float
    note: str
    """What the platform's times do not say."""
    facts: ProbeFacts
    rows: list[Measurement]
    left_out: dict[str, str] = field(default_factory=dict)

    def best(self, kind: str, name: str | None = None, *, who: str | None = None) -> Measurement | None:
        """The row with the highest rate, or the shortest time for latencies."""
        rows = [r for r in self.rows if r.kind == kind and name in (None, r.name) and who in (None, r.who)]
        return max(rows, key=lambda row: row.rate if row.rate is not None else -row.time_us, default=None)

    def to_dict(self) -> dict[str, Json]:
        return {"schema": 1, **asdict(self)}


def probe(
    *, platform: str, ranks: int, quick: bool, progress: Callable[[str], None] = lambda text: None
) -> Probe:  # fmt: skip
    """Everything that this platform lets us measure with so many ranks, at least two."""
    if ranks < 2:
        raise UserError(f"{ranks} rank has no peer to measure a link with", "give --ranks 2 or more")
    with running(platform, ranks, say=progress) as place, OracleWorld(place, ranks) as world:
        return _Run(world, place, quick=quick, progress=progress).all()


class _Part(NamedTuple):
    kind: Literal["matrix", "memory", "link", "latency"]
    """Of its rows."""
    command: ProbeMatrix | ProbeMemory | ProbeLink | ProbeLatency
    what: str
    """Shown meanwhile."""


class _Run:
    def __init__(
        self, world: OracleWorld, platform: Platform, *, quick: bool, progress: Callable[[str], None]
    ) -> None:  # fmt: skip
        self._world, self._platform, self._quick, self._progress = world, platform, quick, progress
        self._ranks = world.world_size
        self._size = size_for(platform.device, quick=quick)
        self._left_out: dict[str, str] = {}

    def all(self) -> Probe:
        began = time.monotonic()
        size = self._size
        opening = ProbeOpen(size.effort, size.half_bytes, DTYPES)
        opened = self._ask(opening, what=f"starting {self._ranks} ranks", limit_s=OPEN_LIMIT_S)[0]
        facts = opened.facts
        rows: list[Measurement] = []
        for part in self._parts(opened):
            who = getattr(part.command, "who", "")
            rows += combine(part.kind, who, self._ask(part.command, what=part.what))
        found = gpus() if self._platform.device == "cuda" else ()
        return Probe(
            platform=self._platform.name, ranks=self._ranks, quick=self._quick,
            device=str(facts.get("gpu") or facts["cpu"]), driver=found[0].driver if found else "",
            date=time.strftime("%Y-%m-%d %H:%M:%S%z"), seconds=round(time.monotonic() - began, 1),
            note=self._platform.note, facts=facts, rows=rows, left_out=self._left_out,
        )  # fmt: skip

    def _parts(self, opened: ProbeOpened) -> Iterator["_Part"]:
        """What cannot be measured here is noted on the way."""
        cuda, size = self._platform.device == "cuda", self._size
        crowds: tuple[Crowd, ...] = ("alone", "together")
        for dtype in DTYPES:
            if why := opened.no_product.get(dtype):
                self._left_out[f"matrix {dtype}"] = why
                continue
            for who in crowds:
                yield _Part("matrix", ProbeMatrix(dtype, tuple(size.sides), who), f"{dtype} products, {who}")
        for who in crowds:
            sharers = self._ranks if who == "together" and traits(self._platform.name).shares_gpu else 1
            cached = int(opened.facts.get("l2_bytes") or 0) // (4 * sharers) // 4096 * 4096
            yield _Part("memory", ProbeMemory(size.memory_bytes, cached, who), f"memory, {who}")
        patterns: tuple[Pattern, ...] = ("pair", "ring")
        for way in opened.ways:
            if why := self._why_not(way, opened.facts):
                self._left_out[f"link {way}"] = why
                continue
            for pattern in patterns:
                limit = size.half_bytes // (self._ranks if way == "multimem_store" and pattern == "ring" else 1)
                sizes = tuple(size.message_sizes(limit))
                link = ProbeLink(way, sizes, tuple(size.blocks), pattern)
                yield _Part("link", link, f"between ranks: {way}, {pattern}")
        if not cuda:
            self._left_out |= {
                "memory l2_read": "GPUs only",
                "link copy_engine, tma, multimem": "GPUs only; a core copies through shared memory",
                "latency launch_host, barrier_in_kernel": "GPUs only",
            }
        yield _Part("latency", ProbeLatency(), "latency")

    def _why_not(self, way: str, facts: ProbeFacts) -> str:
        if way.startswith(("tma", "multimem")) and int(facts["capability"] or 0) < 90:
            return "needs compute capability 9.0"
        if way.startswith("multimem") and not facts["multicast"]:
            return "no multicast here: it needs several GPUs on an NVSwitch"
        return ""

    def _ask(self, command: Command[R], *, what: str, limit_s: float = PART_LIMIT_S) -> dict[int, R]:
        self._progress(what)
        try:
            return self._world.ask("world", command, timeout_s=limit_s)
        except CrewFailure as failure:
            states = "; ".join(f"rank {state.rank} {state.state}: {state.where}" for state in failure.states)
            text = f"the probe failed at {what!r}: {failure_words(failure)}" + (f" [{states}]" if states else "")
            raise UserError(text, "a wrong or missing result here is a defect of the machine or of pkb") from failure


def combine(kind: str, who: str, answers: dict[int, ProbeRows]) -> list[Measurement]:
    """Rows of all ranks, which did the same things in the same order, as one."""
    rows = []
    for same in zip(*(answers[rank].rows for rank in sorted(answers)), strict=True):
        working = [row for row in same if row.us]
        # Ranks begin a repeat together; it is over when the last one is.
        times = [max(repeat) for repeat in zip(*(row.us for row in working), strict=True)]
        first, middle = same[0], median(times)
        rows.append(
            Measurement(
                kind=kind, name=first.name, who=first.who or who, ranks=len(working), size=first.size,
                blocks=first.blocks, time_us=middle, low_us=min(times), high_us=max(times),
                rate=1e6 * first.work / middle if first.work else None,
            )
        )  # fmt: skip
    return rows
