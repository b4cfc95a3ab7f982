"""Between ranks: every way that bytes can travel, over message sizes and numbers of blocks, and whether they arrived.

Each rank has a symmetric buffer of two halves: a source that nobody writes, in which every 4-byte word is different, and a
target. Patterns: `pair` (rank 1 to rank 0, the others idle) and `ring` (every rank receives from the next one, all at once).
In both, rank r receives from rank r + 1. Each call uses the next piece of the halves, so data comes from memory, not from L2,
as long as the halves are larger than that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from pkb import kit
from pkb.rank.probe.sample import ProbeTimes, Sampler

POISON = 0x7FC0BEEF
"""A NaN in float32, so that it shows in sums as well."""
BULK_STAGES = 6
BULK_CHUNK = 32 * 1024
"""probe.cu has the same number of stages; together they are the shared memory of a block, 192 KiB of the 227."""
BLOCK_BYTES = 16 * 1024
"""One access of 16 bytes by each of 1024 threads: a message gets no more blocks than it has of these."""


class Way(NamedTuple):
    kernel: str
    """Of probe.cu; empty for a copy that the driver makes."""
    pushes: bool
    """The sender does it; otherwise the receiver."""
    multicast: bool = False


WAYS = {
    "copy_engine": Way("", pushes=True),
    "load": Way("move", pushes=False),
    "store": Way("move", pushes=True),
    "tma_load": Way("move_bulk", pushes=False),
    "tma_store": Way("move_bulk", pushes=True),
    "multimem_load": Way("multimem_load", pushes=False, multicast=True),
    "multimem_store": Way("multimem_store", pushes=True, multicast=True),
}
CPU_WAYS = {"load": Way("", pushes=False), "store": Way("", pushes=True)}

Move = Callable[[int], object]
"""Moves one message that begins at this offset of both halves."""


class Span(NamedTuple):
    """Words of the target that must hold what `content` has at the same place."""

    start: int
    stop: int
    content: torch.Tensor


@dataclass
class Links:
    sampler: Sampler
    rank: int
    world_size: int
    half_bytes: int
    kernels: Any = None
    """The module of probe.cu; None on a CPU, where a core copies."""

    def __post_init__(self) -> None:
        self.device = self.sampler.device.torch_device
        stage = kit.staging(2 * self.half_bytes, self.device, name="probe")
        self.handle = stage.handle
        words = stage.buffer.view(torch.int32)
        self.source, self.target = words[: self.half_bytes // 4], words[self.half_bytes // 4 :]
        self.source.copy_(self.content(self.rank))
        self.arriving = self.content((self.rank + 1) % self.world_size)
        self.sampler.device.synchronize()
        self.sampler.meet()

    @property
    def multicast(self) -> bool:
        return int(self.handle.multicast_ptr) != 0

    def content(self, rank: int) -> torch.Tensor:
        """What the source of a rank holds: no word comes twice, and no place has the same word on two ranks."""
        index = torch.arange(self.half_bytes // 4, dtype=torch.int32, device=self.device)
        return index.mul_(1664525).add_(1013904223 * (rank + 1) % 2**31)

    def numbers(self, rank: int) -> torch.Tensor:
        """The same for sums: whole numbers in float32, so small that their sum over all ranks is exact in any order."""
        index = torch.arange(self.half_bytes // 4, dtype=torch.int32, device=self.device)
        return index.remainder_(4093).add_(rank).float()

    def measure(self, name: str, *, pattern: str, nbytes: int, blocks: int | None) -> ProbeTimes:
        """One way at one size, checked. Collective."""
        way = (WAYS if self.device.type == "cuda" else CPU_WAYS)[name]
        if way.multicast:
            return self._measure_multicast(name, pattern=pattern, nbytes=nbytes, blocks=blocks)
        receiver, sender = (self.rank - 1) % self.world_size, (self.rank + 1) % self.world_size
        to_rank, from_rank = (receiver, self.rank) if way.pushes else (self.rank, sender)
        runs = pattern == "ring" or self.rank == (1 if way.pushes else 0)
        move = self._mover(way, nbytes=nbytes, blocks=blocks, to_rank=to_rank, from_rank=from_rank)
        return self.run(name, move, nbytes=nbytes, runs=runs, receives=pattern == "ring" or self.rank == 0)

    def run(self, name: str, move: Move, *, nbytes: int, runs: bool, receives: bool) -> ProbeTimes:
        """Time a way and look at what arrived. A rank that should receive nothing is looked at as well."""
        self.target.fill_(POISON)
        pieces = self.half_bytes // nbytes
        sample = self.sampler.take(lambda number: move(number % pieces * nbytes), runs=runs)
        covered = min(sample.calls, pieces) * nbytes // 4 if receives else 0
        self._check([Span(0, covered, self.arriving)], what=f"{name}, messages of {nbytes} bytes")
        return sample

    def _measure_multicast(self, name: str, *, pattern: str, nbytes: int, blocks: int | None) -> ProbeTimes:
        """Load: a rank sums all ranks' sources into its own target. Store: a rank writes its source into all targets, and
        with all ranks at it, each has its own part of them."""
        everybody, stores = pattern == "ring", name == "multimem_store"
        ranks = range(self.world_size) if everybody else [1 if stores else 0]
        part = self.half_bytes // self.world_size // 16 * 16 if stores and everybody else self.half_bytes
        if nbytes > part:
            raise ValueError(f"{name} of {nbytes} bytes: only {part} are there for each rank")
        self.source.copy_(self.numbers(self.rank).view(torch.int32))
        self.target.fill_(POISON)
        base, mine = int(self.handle.multicast_ptr), self.handle.buffer_ptrs[self.rank]
        launch = self.kernels.kernel(name)[blocks, 1024]
        pieces, first = part // nbytes, part * self.rank if stores and everybody else 0
        shift = self.half_bytes

        def call(number: int) -> None:
            offset = first + number % pieces * nbytes
            if stores:
                launch(base + shift + offset, mine + offset, nbytes)
            else:
                launch(mine + shift + offset, base + offset, nbytes)

        sample = self.sampler.take(call, runs=self.rank in ranks)
        words = min(sample.calls, pieces) * nbytes // 4
        if stores:
            spans = [Span(part * w // 4 if everybody else 0, 0, self.numbers(w).view(torch.int32)) for w in ranks]
            spans = [span._replace(stop=span.start + words) for span in spans]
        else:
            total = torch.stack([self.numbers(peer)[:words] for peer in range(self.world_size)]).sum(0)
            spans = [Span(0, words, total.view(torch.int32))] if self.rank in ranks else []
        self._check(spans, what=f"{name}, messages of {nbytes} bytes")
        self.source.copy_(self.content(self.rank))
        return sample

    def _mover(self, way: Way, *, nbytes: int, blocks: int | None, to_rank: int, from_rank: int) -> Move:
        if not way.kernel:
            size = (self.half_bytes,)
            target = self.handle.get_buffer(to_rank, size, torch.uint8, self.half_bytes)
            source = self.handle.get_buffer(from_rank, size, torch.uint8, 0)
            return lambda offset: target[offset : offset + nbytes].copy_(source[offset : offset + nbytes])
        pointers = self.handle.buffer_ptrs
        to_base, from_base = pointers[to_rank] + self.half_bytes, pointers[from_rank]
        kernel = self.kernels.kernel(way.kernel)
        if way.kernel == "move_bulk":
            assert blocks is not None
            chunk = min(BULK_CHUNK, -(-nbytes // blocks // 16) * 16)
            launch, size_of_chunk = kernel[blocks, 32, BULK_STAGES * chunk], kit.u32(chunk)
            return lambda offset: launch(to_base + offset, from_base + offset, nbytes, size_of_chunk)
        launch = kernel[blocks, 1024]
        return lambda offset: launch(to_base + offset, from_base + offset, nbytes)

    def _check(self, spans: list[Span], *, what: str) -> None:
        """A probe that times a copy which did not happen is a lie: every word must be right, and no other word touched."""
        at = 0
        for span in spans:
            self._untouched(at, span.start, what=what)
            got, wanted = self.target[span.start : span.stop], span.content[span.start : span.stop]
            if not torch.equal(got, wanted):
                wrong = int((got != wanted).nonzero()[0])
                raise RuntimeError(
                    f"rank {self.rank}, {what}: byte {4 * (span.start + wrong)} arrived wrong "
                    f"({int((got != wanted).sum())} of {got.numel()} words)"
                )
            at = span.stop
        self._untouched(at, self.target.numel(), what=what)

    def _untouched(self, start: int, stop: int, *, what: str) -> None:
        changed = self.target[start:stop] != POISON
        if bool(changed.any()):
            where = 4 * (start + int(changed.nonzero()[0]))
            raise RuntimeError(f"rank {self.rank}, {what}: byte {where} was written, and no message reaches it")


def blocks_for(nbytes: int, sms: int) -> int:
    return max(1, min(sms, nbytes // BLOCK_BYTES))
