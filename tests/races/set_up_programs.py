"""Set-up in a first call, for programs.py: flags are zeroed, the memory of all ranks is exchanged, and peers set them.

What torch's rendezvous orders and what it does not: rank/emulate/races/symmetric.py.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

Solution = Callable[[torch.Tensor], torch.Tensor]
FLAGS = 64
WAYS = {
    "torch: set-up, flags zeroed and exchanged": False,
    "torch: set-up, flags zeroed after the exchange": False,
    "torch: set-up, then a barrier": True,
    "torch: set-up, then dist.barrier": True,
    "torch: set-up, waited for before the exchange": True,
    "torch: set-up, a number read before the exchange": True,
    "torch: set-up, a table copied before the exchange": True,
    "torch: set-up, then a second exchange": True,
    "torch: set-up, memory allocated before the exchange": True,
}
"""Names of programs, and whether what they do orders the zeroes of a rank before what a peer does to them."""


def _rendezvous(buffer: torch.Tensor) -> Any:
    assert dist.group.WORLD is not None
    return symm_mem.rendezvous(buffer, dist.group.WORLD)


def set_up(way: str, *, dtype: torch.dtype) -> Callable[[int, int], Solution]:
    """Everybody zeroes flags of its own and sets one at each peer, once."""

    def first(rank: int, world: int) -> Any:
        flags = symm_mem.empty(FLAGS, dtype=dtype)
        if not way.endswith("after the exchange"):
            flags.zero_()
        if way.endswith("waited for before the exchange"):
            torch.cuda.synchronize()
        if way.endswith("a number read before the exchange"):
            assert int(torch.ones(1).item()) == 1
        if way.endswith("a table copied before the exchange"):
            torch.tensor([0, 1], device=flags.device)
        other = symm_mem.empty(FLAGS, dtype=dtype) if way.endswith("memory allocated before the exchange") else None
        handle = _rendezvous(flags)
        if way.endswith("after the exchange"):
            flags.zero_()
        if way.endswith("then a barrier"):
            handle.barrier(channel=1)
        if way.endswith("then dist.barrier"):
            dist.barrier()
        if way.endswith("then a second exchange"):
            other = symm_mem.empty(FLAGS, dtype=dtype)
            _rendezvous(other)
        for peer in range(world):
            if peer != rank:
                handle.get_buffer(peer, (FLAGS,), dtype)[rank].fill_(1)
        handle.barrier(channel=2)
        return flags, other, handle

    def make(rank: int, world: int) -> Solution:
        made: list[Any] = []

        def solution(x: torch.Tensor) -> torch.Tensor:
            if not made:
                made.append(first(rank, world))
            return x + 1

        return solution

    return make
