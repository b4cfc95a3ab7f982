"""Small programs of two and three ranks in torch and Triton, recorded and analysed. Prints what was found, as lines of JSON.

In a process of its own: Triton must be told before it is imported that it is interpreted.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl
from race_world import run
from set_up_programs import WAYS, set_up

from pkb.kit import triton_kit
from pkb.rank.emulate.races import looks
from pkb.rank.emulate.races.recording import recorded_calls

CALLS, WORDS = 3, 64
Solution = Callable[[torch.Tensor], torch.Tensor]
RACE, NARROW = "no_synchronisation", "scope_too_narrow"
RELAXED, REUSED = "relaxed_where_release_acquire_is_needed", "buffer_reused_too_early"


@dataclass(frozen=True)
class Program:
    name: str
    make: Callable[[int, int], Solution]
    """Of rank and world: what is called."""
    expected: frozenset[str]
    """Kinds, one of which and nothing else must be found; none where it is honest. Which of two accesses came first, and so
    whether a buffer was read or written too early, depends on the order in which ranks ran."""
    world: int = 3
    lines: tuple[str, ...] = ()
    """Parts of lines of this file, of which a finding must name each."""
    unknown_looks: bool = False
    """Whether the host looks at bytes of peers that are not known for flags."""


def _handle(words: int = WORDS) -> tuple[torch.Tensor, Any]:
    buffer = symm_mem.empty(words, dtype=torch.float32)
    assert dist.group.WORLD is not None
    return buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)


def by_barriers(*, first: bool = True, second: bool = True, meet: str = "handle") -> Callable[[int, int], Solution]:
    """Everybody publishes, everybody reads all, and the buffer is used again."""

    def make(rank: int, world: int) -> Solution:
        buffer, handle = _handle()

        def wait() -> None:
            if meet == "handle":
                handle.barrier(channel=1)
            elif meet == "dist.barrier":
                dist.barrier()
            else:
                dist.all_reduce(torch.ones(1))

        def solution(x: torch.Tensor) -> torch.Tensor:
            buffer.copy_(x)
            if first:
                wait()
            total = torch.zeros(WORDS)
            for peer in range(world):
                total += handle.get_buffer(peer, (WORDS,), torch.float32)
            if second:
                wait()
            return total

        return solution

    return make


def by_signals(*, waits_for: int) -> Callable[[int, int], Solution]:
    """Signals to both neighbours, but only the one at this distance is waited for before the one before is read."""

    def make(rank: int, world: int) -> Solution:
        buffer, handle = _handle()

        def solution(x: torch.Tensor) -> torch.Tensor:
            buffer.copy_(x)
            for step in (1, -1):
                handle.put_signal((rank + step) % world, channel=step + 1)
            handle.wait_signal((rank + waits_for) % world, channel=1 - waits_for)
            got = handle.get_buffer((rank - 1) % world, (WORDS,), torch.float32).clone()
            handle.wait_signal((rank - waits_for) % world, channel=1 + waits_for)
            handle.barrier(channel=3)
            return got

        return solution

    return make


def by_broadcast(*, root: int) -> Callable[[int, int], Solution]:
    """What rank 0 published is read by those who know from a broadcast that it has: if it was rank 0's."""

    def make(rank: int, world: int) -> Solution:
        buffer, handle = _handle()

        def solution(x: torch.Tensor) -> torch.Tensor:
            if rank == 0:
                buffer.copy_(x)
            dist.broadcast(torch.zeros(1), src=root)
            got = handle.get_buffer(0, (WORDS,), torch.float32) * 2
            handle.barrier()
            return got

        return solution

    return make


def by_messages(*, late: bool) -> Callable[[int, int], Solution]:
    """Rank 0 publishes and sends a message, whose wait comes in time or too late."""

    def make(rank: int, world: int) -> Solution:
        buffer, handle = _handle()

        def solution(x: torch.Tensor) -> torch.Tensor:
            got = x
            if rank == 0:
                buffer.copy_(x)
                for peer in range(1, world):
                    dist.send(torch.zeros(1), peer)
            else:
                work = dist.irecv(torch.zeros(1), 0)
                assert work is not None
                if not late:
                    work.wait()
                got = handle.get_buffer(0, (WORDS,), torch.float32) + 1
                if late:
                    work.wait()
            handle.barrier()
            return got

        return solution

    return make


def by_library(*, barrier: bool) -> Callable[[int, int], Solution]:
    """torch's own reduction has its barriers; who writes the buffer of a peer without one has not."""

    def make(rank: int, world: int) -> Solution:
        buffer, handle = _handle()
        other = handle.get_buffer((rank + 1) % world, (WORDS,), torch.float32)

        def solution(x: torch.Tensor) -> torch.Tensor:
            buffer.copy_(x)
            total: torch.Tensor = torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", dist.group.WORLD.group_name)  # type: ignore[union-attr]
            if not barrier:
                other[:2].fill_(0)
            return total

        return solution

    return make


def by_flags(*, dtype: torch.dtype, second: bool = True) -> Callable[[int, int], Solution]:
    """Python waits for flags that operators set. A few integers are known for flags; floats are not."""

    def make(rank: int, world: int) -> Solution:
        buffer, handle = _handle()
        flags = symm_mem.empty(world, dtype=dtype).zero_()
        assert dist.group.WORLD is not None
        flag_handle, epoch = symm_mem.rendezvous(flags, dist.group.WORLD), [0]
        dist.barrier()

        def meet() -> None:
            epoch[0] += 1
            for peer in range(world):
                flag_handle.get_buffer(peer, (world,), dtype)[rank] = epoch[0]
            while int(flags.min()) < epoch[0]:
                pass

        def solution(x: torch.Tensor) -> torch.Tensor:
            buffer.copy_(x)
            meet()
            total = sum(handle.get_buffer(peer, (WORDS,), torch.float32) for peer in range(world))
            if second:
                meet()
            return total + float(x[0])  # a look at what is not a peer's

        return solution

    return make


def by_numbers(*, second: bool) -> Callable[[int, int], Solution]:
    """Each rank publishes one number, which the others look at: no flag, and no wait."""

    def make(rank: int, world: int) -> Solution:
        buffer, handle = _handle(1)

        def solution(x: torch.Tensor) -> torch.Tensor:
            buffer.fill_(x[0])
            handle.barrier(channel=0)
            total = sum(float(handle.get_buffer(peer, (1,), torch.float32)[0]) for peer in range(world))
            if second:
                handle.barrier(channel=1)
            return x * total

        return solution

    return make


def by_parts() -> Callable[[int, int], Solution]:
    """Ranks write every other row of one rank's memory: they interleave, and never overlap."""

    def make(rank: int, world: int) -> Solution:
        _, handle = _handle()
        mine = handle.get_buffer(0, (WORDS // 4, 4), torch.float32)[:, rank]

        def solution(x: torch.Tensor) -> torch.Tensor:
            mine.copy_(x[: WORDS // 4])
            handle.barrier()
            got = handle.get_buffer(0, (WORDS,), torch.float32).sum()
            handle.barrier()
            return got

        return solution

    return make


@triton.jit
def exchange(
    table: Any, counts: Any, source: Any, out: Any, count: Any, rank: tl.constexpr, SEM: tl.constexpr,
    SCOPE: tl.constexpr, WAIT: tl.constexpr,
    ACQUIRE: tl.constexpr, N: tl.constexpr, VOLATILE: tl.constexpr,
) -> None:  # fmt: skip
    """Message passing: data, then a flag; the flag, then data. And back, so that the buffer may be used again."""
    at = tl.arange(0, N)
    peer: tl.constexpr = 1 - rank
    mine = tl.load(table + rank).to(tl.pointer_type(tl.float32))
    theirs = tl.load(table + peer).to(tl.pointer_type(tl.float32))
    to = tl.load(counts + peer).to(tl.pointer_type(tl.int32))
    own = tl.load(counts + rank).to(tl.pointer_type(tl.int32))
    tl.store(mine + at, tl.load(source + at))
    tl.debug_barrier()
    tl.atomic_xchg(to, count, sem=SEM, scope=SCOPE)
    if WAIT:
        if VOLATILE:
            while tl.load(own, volatile=True) < count:
                pass
        else:
            while tl.atomic_add(own, 0, sem=ACQUIRE, scope=SCOPE) < count:
                pass
    tl.debug_barrier()
    tl.store(out + at, tl.load(theirs + at))
    tl.debug_barrier()
    tl.atomic_xchg(to + 1, count, sem="release", scope="sys")
    while tl.atomic_add(own + 1, 0, sem="acquire", scope="sys") < count:
        pass
    tl.debug_barrier()


@triton.jit
def with_kit(
    table: Any, counts: Any, source: Any, out: Any, rank: tl.constexpr, world: tl.constexpr, N: tl.constexpr,
    AFTER: tl.constexpr,
) -> None:  # fmt: skip
    program = tl.program_id(0)
    at = program * N + tl.arange(0, N)
    mine = triton_kit.peer_pointer(table, rank, tl.float32)
    tl.store(mine + at, tl.load(source + at))
    triton_kit.barrier(counts, program, rank, world)
    total = triton_kit.load_sum(table, table, at, at >= 0, tl.float32, world, False)
    tl.store(out + at, total)
    if AFTER:
        triton_kit.barrier(counts, program, rank, world)


def in_triton(
    *, sem: str = "release", acquire: str = "acquire", scope: str = "sys", wait: bool = True, volatile: bool = False
) -> Callable[[int, int], Solution]:
    def make(rank: int, world: int) -> Solution:
        (_, handle), (_, flags) = _handle(), _handle(16)
        table, counts = triton_kit.tables(handle), triton_kit.tables(flags)
        count = [0]

        def solution(x: torch.Tensor) -> torch.Tensor:
            assert handle is not flags  # both are held: addresses alone keep nothing alive
            out = torch.empty(WORDS)
            count[0] += 1
            exchange[(1,)](
                table, counts, x, out, count[0], rank=rank, SEM=sem, SCOPE=scope, WAIT=wait, ACQUIRE=acquire, N=WORDS,
                VOLATILE=volatile,
            )  # fmt: skip
            return out

        return solution

    return make


def by_kit(*, after: bool) -> Callable[[int, int], Solution]:
    def make(rank: int, world: int) -> Solution:
        (_, handle), (_, flags) = _handle(), _handle(64)
        table, counts = triton_kit.tables(handle), triton_kit.tables(flags)

        def solution(x: torch.Tensor) -> torch.Tensor:
            assert handle is not flags  # as above
            out = torch.empty(WORDS)
            with_kit[(2,)](table, counts, x, out, rank=rank, world=world, N=WORDS // 2, AFTER=after)
            return out

        return solution

    return make


def _found(*kinds: str) -> frozenset[str]:
    return frozenset(kinds)


PROGRAMS = (
    Program("torch: barriers before and after", by_barriers(), _found()),
    Program("torch: dist.barrier before and after", by_barriers(meet="dist.barrier"), _found()),
    Program("torch: all_reduce as a barrier", by_barriers(meet="all_reduce"), _found(), world=2),
    Program("torch: no barrier before", by_barriers(first=False), _found(RACE, REUSED)),
    Program("torch: no barrier after", by_barriers(second=False), _found(RACE, REUSED),
            lines=("buffer.copy_(x)", "total += handle")),
    Program("torch: signals of the right neighbour", by_signals(waits_for=-1), _found()),
    Program("torch: signals of the wrong neighbour", by_signals(waits_for=1), _found(RACE, REUSED),
            lines=("got = handle.get_buffer((rank - 1)",)),
    Program("torch: broadcast by the one who published", by_broadcast(root=0), _found()),
    Program("torch: broadcast by another", by_broadcast(root=1), _found(RACE, REUSED)),
    Program("torch: message waited for in time", by_messages(late=False), _found(), world=2),
    Program("torch: message waited for too late", by_messages(late=True), _found(RACE, REUSED), world=2),
    Program("torch: its own reduction", by_library(barrier=True), _found()),
    Program("torch: a peer's buffer written beside it", by_library(barrier=False), _found(RACE, REUSED)),
    Program("torch: flags that Python waits for", by_flags(dtype=torch.int32), _found()),
    Program("torch: such flags before the reads only", by_flags(dtype=torch.int32, second=False), _found(RACE, REUSED)),
    Program("torch: flags that nobody knows", by_flags(dtype=torch.float32), _found(RACE, REUSED), unknown_looks=True),
    Program("torch: numbers that the host looks at", by_numbers(second=True), _found(), unknown_looks=True),
    Program("torch: such numbers overwritten too early", by_numbers(second=False), _found(RACE, REUSED), unknown_looks=True),
    Program("torch: parts that interleave", by_parts(), _found()),
    Program("Triton: release and acquire", in_triton(), _found(), world=2),
    Program("Triton: relaxed where release is needed", in_triton(sem="relaxed"), _found(RELAXED), world=2),
    Program("Triton: relaxed where acquire is needed", in_triton(acquire="relaxed"), _found(RELAXED), world=2),
    Program("Triton: a volatile load where acquire is needed", in_triton(volatile=True), _found(RELAXED), world=2),
    Program("Triton: scope of one GPU", in_triton(scope="gpu"), _found(NARROW), world=2),
    Program("Triton: not waited for", in_triton(wait=False), _found(RACE, REUSED), world=2),
    Program("Triton: the kit's barriers before and after", by_kit(after=True), _found()),
    Program("Triton: the kit's barrier before only", by_kit(after=False), _found(RACE, REUSED)),
    *(Program(f"{way}, {dtype}", set_up(way, dtype=dtype), _found() if ordered else _found(RACE, REUSED), world=2)
      for way, ordered in WAYS.items() for dtype in (torch.uint8, torch.int32)),
)  # fmt: skip


def _expected(program: Program) -> dict[str, Any]:
    return {"expected": sorted(program.expected), "lines": program.lines, "unknown_expected": program.unknown_looks}


def main() -> None:
    for program in PROGRAMS:
        if len(sys.argv) > 1 and not any(wanted in program.name for wanted in sys.argv[1:]):
            continue

        def body(rank: int, program: Program = program) -> bytes:
            solution: list[Any] = []

            def call(x: torch.Tensor) -> torch.Tensor:
                if not solution:
                    solution.append(program.make(rank, program.world))
                return solution[0](x)  # type: ignore[no-any-return]

            calls = recorded_calls(call)
            for number in range(CALLS):
                calls(torch.full((WORDS,), float(rank + number)))
            return b"unknown" if looks.unknown() else b"known"

        ran = run(body, world=program.world)
        found = {"name": program.name, "trouble": ran.trouble, "report": ran.report, "unknown": b"unknown" in ran.said}
        print(json.dumps(found | _expected(program)), flush=True)


if __name__ == "__main__":
    main()
