"""What a rank knows of its window: which arguments are still sealed, and how outputs are committed to.

Arguments lie sealed in the candidate's memory until a batch names their key: XORed with a keystream of which nobody there has a
byte. They are opened in place and in stream order, directly before the call that uses them. The digests of all outputs go into
the batch's report. So whatever a candidate's process does to the code in it, the work of a batch begins after its key was sent
and is over before its report arrives; both moments are the judge's.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import torch

from pkb.rank.trees import Tree, describe, tensors_in

Digest = tuple[str, ...]
"""Of one tree, by tensor."""


class Window(Protocol):
    """The cipher and the hash of one kind of device. Both sides of an evaluation are on the same kind."""

    def prepare(self, tensors: Sequence[torch.Tensor]) -> Any:
        """What `apply` needs of these contiguous tensors, found out beforehand."""
        ...

    def apply(self, prepared: Any, key: bytes, *, rank: int, slot: int) -> None:
        """XOR with the keystream, in place and in stream order: seals, and opens."""
        ...

    def commit(self, trees: Sequence[Sequence[torch.Tensor]], key: bytes) -> Callable[[], list[Digest]]:
        """Hash in stream order; what it returns gives the digests once the device is through."""
        ...


class Seals:
    def __init__(self, window: Window, rank: int) -> None:
        self.window, self._rank = window, rank
        self._held: dict[int, Any] = {}
        self._opened: set[int] = set()

    def hold(self, slot: int, sealed: Tree) -> None:
        """Notes that these arguments arrived sealed."""
        self._held[slot] = self.window.prepare(tensors_in(sealed))

    def seal(self, slot: int, tree: Tree, key: bytes) -> None:
        """Seals these arguments, whose tensors are contiguous and used by nothing else."""
        self.hold(slot, tree)
        self.window.apply(self._held[slot], key, rank=self._rank, slot=slot)

    def open(self, slot: int, key: bytes) -> bool:
        """Opens the arguments of a slot; True if they were sealed (a slot that is called again is already open)."""
        if slot not in self._held or slot in self._opened:
            return False
        if not key:
            raise RuntimeError(f"the arguments of call {slot} are sealed, and their key has not come")
        self.window.apply(self._held[slot], key, rank=self._rank, slot=slot)
        self._opened.add(slot)
        return True

    def open_again(self, slots: Iterable[int]) -> None:
        """The next `open` runs again, which seals what is open: used to measure what opening costs."""
        self._opened.difference_update(slots)

    def commit(self, trees: Iterable[Tree], key: bytes) -> Callable[[], list[Digest]]:
        return self.window.commit([describe(tree)[1] for tree in trees], key)

    def digest(self, tree: Tree, key: bytes = b"") -> Digest:
        return self.commit([tree], key)()[0]

    def forget(self, slot: int) -> None:
        self._held.pop(slot, None)

    def drop(self) -> None:
        self._held.clear()
        self._opened.clear()
