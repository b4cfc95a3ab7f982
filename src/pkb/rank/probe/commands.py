"""The rank's side of `pkb probe`: takes one part of the measurements at a time and answers with times per call.

The judge asks all ranks for the same part; who works in it and who stands by follows from `who`: `alone` (rank 0), `together`
(all), `pair` (rank 1 to rank 0), `ring` (each from the next). Times are combined by the judge.
"""

import platform
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from pkb import kit
from pkb.rank.probe.latency import Latency
from pkb.rank.probe.links import CPU_WAYS, WAYS, Links, blocks_for
from pkb.rank.probe.local import Memory, product, why_no_product
from pkb.rank.probe.sample import ProbeTimes, Sampler, agree
from pkb.rank.server import Rank
from pkb.rank.symmetric import memory as symmetric
from pkb.types.protocol.commands import Command, Crowd, ProbeLatency, ProbeLink, ProbeMatrix, ProbeMemory, ProbeOpen
from pkb.types.protocol.replies import ProbeFacts, ProbeOpened, ProbeRow, ProbeRows, Reply

SOURCE = Path(__file__).with_name("probe.cu")
MEET_LIMIT_S = 60.0
SLOW_US = 50_000.0


def answer(rank: Rank, command: Command[Reply]) -> ProbeOpened | ProbeRows:
    """Do one part. Rows say what was done and the times of this rank."""
    session = _session(rank)
    match command:
        case ProbeOpen():
            return session.open(command)
        case ProbeMatrix():
            rows = session.matrix(command)
        case ProbeMemory():
            rows = session.memory(command)
        case ProbeLink():
            rows = session.link(command)
        case ProbeLatency():
            rows = session.latency()
        case _:
            raise TypeError(f"{type(command).__name__} is no part of the probe")
    if session.cuda:
        torch.cuda.empty_cache()
    return ProbeRows(tuple(rows))


@lru_cache(maxsize=1)
def _session(rank: Rank) -> "Session":
    return Session(rank)


class Session:
    """What stays from part to part: the compiled kernels and the symmetric buffers."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self.number, self.world_size = rank.config.rank, rank.config.world_size
        self.device = rank.device.torch_device
        self.cuda = self.device.type == "cuda"
        self.kernels: Any = None
        self.sms = 1

    def open(self, command: ProbeOpen) -> ProbeOpened:
        self.sampler = Sampler(
            self._rank.device, effort=command.effort, meet=lambda: self._rank.barrier.wait(timeout_s=MEET_LIMIT_S)
        )
        facts: ProbeFacts = {"torch": torch.__version__}
        if self.cuda:
            self.kernels = kit.compile(SOURCE.read_text(), name="probe")
            properties = torch.cuda.get_device_properties(self.device)
            self.sms = properties.multi_processor_count
            facts |= self._rank.device.facts() | {
                "sms": self.sms,
                "l2_bytes": properties.L2_cache_size,
                "memory_bytes": properties.total_memory,
                "capability": properties.major * 10 + properties.minor,
            }
        else:
            facts |= {"cpu": _cpu_name(), "l2_bytes": _cache_bytes()}
            shared = self._rank.config.folder / "symmetric"
            shared.mkdir(exist_ok=True)
            symmetric.install(shared, timeout_s=MEET_LIMIT_S)
        self.links = Links(
            self.sampler, rank=self.number, world_size=self.world_size, half_bytes=command.half_bytes,
            kernels=self.kernels,
        )  # fmt: skip
        facts["multicast"] = self.links.multicast
        self._latency = Latency(
            self.sampler, rank=self.number, world_size=self.world_size, kernels=self.kernels
        )  # fmt: skip
        missing = {dtype: why_no_product(dtype, self.device) for dtype in command.dtypes}
        return ProbeOpened(
            facts=facts,
            ways=tuple(WAYS if self.cuda else CPU_WAYS),
            no_product={dtype: why for dtype, why in missing.items() if why},
        )

    def matrix(self, command: ProbeMatrix) -> list[ProbeRow]:
        dtype, rows = command.dtype, []
        for side in command.sides:
            self._step(f"{dtype} product of side {side}")
            sample = product(self.sampler, dtype=dtype, side=side, runs=self._runs(command.who), rank=self.number)
            rows.append(_row(sample, name=dtype, size=side, work=2 * side**3))
            if agree(min(sample.us, default=0.0)) > SLOW_US:
                break  # a larger one takes eight times as long and tells nothing new
        return rows

    def memory(self, command: ProbeMemory) -> list[ProbeRow]:
        """Memory behind the caches; on a GPU also L2, with a buffer that fits beside those of the ranks that share it."""
        runs, nbytes = self._runs(command.who), command.nbytes
        memory = Memory(self.sampler, rank=self.number, kernels=self.kernels, blocks=self.sms)
        self._step("copying within its own memory")
        rows = [_row(memory.copy(nbytes, by_kernel=False, runs=runs), name="copy", size=nbytes, work=2 * nbytes)]
        if self.cuda:
            sample = memory.copy(nbytes, by_kernel=True, runs=runs)
            rows.append(_row(sample, name="copy_kernel", size=nbytes, work=2 * nbytes))
        self._step("reading its own memory")
        rows.append(_row(memory.read(nbytes, passes=1, runs=runs), name="read", size=nbytes, work=nbytes))
        if self.cuda:
            cached, passes = command.cached_bytes, 32
            self._step("reading from L2")
            sample = memory.read(cached, passes=passes, runs=runs)
            rows.append(_row(sample, name="l2_read", size=cached, work=cached * passes))
        return rows

    def link(self, command: ProbeLink) -> list[ProbeRow]:
        """One way, over sizes (with as many blocks as the size deserves) and over blocks (at the largest size)."""
        way, rows = command.way, []
        blocked = self.cuda and way != "copy_engine"
        plan: list[tuple[int, int | None]] = [
            (nbytes, blocks_for(nbytes, self.sms) if blocked else None) for nbytes in command.sizes
        ]
        if blocked:
            largest = max(command.sizes)
            counts = [count for count in command.blocks if count < self.sms]
            plan += [(largest, count) for count in [*counts, self.sms]]
        for nbytes, blocks in dict.fromkeys(plan):
            self._step(f"{way}, {nbytes} bytes, {blocks} blocks, {command.who}")
            sample = self.links.measure(way, pattern=command.who, nbytes=nbytes, blocks=blocks)
            rows.append(_row(sample, name=way, size=nbytes, work=nbytes, blocks=blocks))
        return rows

    def latency(self) -> list[ProbeRow]:
        self._step("latency")
        first = self.number == 0
        rows = [_row(self._latency.launch(runs=first), name="launch", who="alone")]
        if self.cuda:
            rows.append(_row(self._latency.launch_host(runs=first), name="launch_host", who="alone"))
        rows.append(_row(self._latency.barrier(), name="barrier", who="together"))
        if self.cuda:
            rows.append(_row(self._latency.barrier_in_kernel(), name="barrier_in_kernel", who="together"))
        return [*rows, _row(self._latency.round_trip(), name="round_trip", who="pair")]

    def _runs(self, who: Crowd) -> bool:
        return who == "together" or self.number == 0

    def _step(self, what: str) -> None:
        self._rank.status.step(f"probing: {what}")


def _row(
    sample: ProbeTimes, *, name: str, size: int = 0, work: int = 0, who: str = "", blocks: int | None = None
) -> ProbeRow:
    return ProbeRow(name, size, work, tuple(sample.us), who, blocks)


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _cache_bytes() -> int | None:
    """The largest cache of the first core, as the kernel tells it; None where it does not."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(size[:-1]) * units[size[-1]] for size in sizes if size[-1:] in units), default=None)
