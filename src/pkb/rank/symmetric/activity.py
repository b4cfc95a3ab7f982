"""What a candidate did with symmetric memory: counted on every platform, and where it waits told to whoever asks.

The judge wants two things that a candidate's own word is not good for: did ranks touch each other's memory at all,
and, when nothing moves any more, which call is each rank stuck in.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class SymmetricActivity:
    """Counters of one rank. Mutable on purpose: it is written on every call, and read when a stage ends."""

    peer_accesses: int = 0
    """Buffers or pads of another rank asked for, or the table of pointers read: a raw pointer may go anywhere after
    that."""
    library_reductions: int = 0
    """Calls of torch's own reductions on symmetric memory (torch.ops.symm_mem.*), which are library code, not a
    kernel."""
    on_wait: Callable[[str | None], None] | None = None
    """Called with a text when a wait does not end at once, and with None when it has ended. It must be cheap."""

    def waiting(self, text: str) -> None:
        if self.on_wait is not None:
            self.on_wait(text)

    def done(self) -> None:
        if self.on_wait is not None:
            self.on_wait(None)


ACTIVITY = SymmetricActivity()
"""The one of this process."""
