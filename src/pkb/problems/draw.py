"""Draws the arguments of one rank for one call from a secret.

Every draw is named and keyed: its values depend on (secret, call, name, key) and on nothing else, so ranks may draw different
things in different orders. The default key is the rank; `key="all"` gives every rank the same values, and any other value
(such as a coordinate of the layout) is shared by the ranks that pass it.
"""

import hashlib
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from pkb.problems.layouts import coordinate


@dataclass(frozen=True)
class GroupRef:
    """Stands for a process group in a list of arguments until the rank puts its own group there."""

    axis: str = "world"


Value: TypeAlias = (
    "torch.Tensor | torch.nn.Module | GroupRef | float | str | Sequence[Value] | Mapping[str, Value] | None"
)
"""What may be drawn. Ints and bools are floats to a type checker."""
Arguments: TypeAlias = dict[str, Value]
"""Of one rank's call, by name, in the order of the signature."""


@dataclass(frozen=True)
class Draw:
    """One rank's source of randomness, with what it needs to know about the case."""

    secret: bytes
    call: int
    rank: int
    world_size: int
    size: Mapping[str, int]
    dtype: torch.dtype
    device: torch.device
    layout: str = "world"
    kind: str = ""
    """Which of the problem's kinds of calls this is to be; empty leaves it to the secret."""

    def kind_of(self, kinds: Mapping[str, float]) -> str:
        """The kind of this call, the same on all ranks."""
        chosen = self.random("kind", key="all").choices(list(kinds), list(kinds.values()))[0]
        return self.kind or chosen

    def coordinate(self, axis: str) -> tuple[int, int]:
        """This rank's index in its group of the axis, and the group's size."""
        return coordinate(self.layout, axis, self.world_size, self.rank)

    def group(self, axis: str = "world") -> GroupRef:
        return GroupRef(axis)

    def _seed(self, name: str, key: Hashable | None) -> int:
        words = repr((self.call, name, self.rank if key is None else ("key", key))).encode()
        return int.from_bytes(hashlib.blake2b(words, key=self.secret, digest_size=8).digest(), "little") >> 1

    def _generator(self, name: str, key: Hashable | None) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(self._seed(name, key))

    def random(self, name: str, key: Hashable | None = None) -> random.Random:
        """A Python generator, for splits, counts and other host-side choices."""
        return random.Random(self._seed(name, key))

    def normal(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        scale: float = 1.0,
        key: Hashable | None = None,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        """Normal values, drawn in float32 and rounded once to the dtype."""
        dtype = dtype or self.dtype
        if self.device.type == "meta":
            return torch.empty(shape, dtype=dtype, device="meta")
        wide = torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32
        values = torch.randn(shape, generator=self._generator(name, key), dtype=wide, device=self.device)
        return values.mul_(scale).to(dtype)

    def uniform(
        self,
        name: str,
        shape: tuple[int, ...],
        low: float,
        high: float,
        *,
        key: Hashable | None = None,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        dtype = dtype or self.dtype
        if self.device.type == "meta":
            return torch.empty(shape, dtype=dtype, device="meta")
        wide = torch.float64 if dtype is torch.float64 else torch.float32
        values = torch.rand(shape, generator=self._generator(name, key), dtype=wide, device=self.device)
        return values.mul_(high - low).add_(low).to(dtype)

    def integers(
        self,
        name: str,
        shape: tuple[int, ...],
        low: int,
        high: int,
        *,
        key: Hashable | None = None,
        dtype: torch.dtype = torch.int64,
    ) -> torch.Tensor:
        """Uniform in [low, high)."""
        if self.device.type == "meta":
            return torch.empty(shape, dtype=dtype, device="meta")
        return torch.randint(low, high, shape, generator=self._generator(name, key), dtype=dtype, device=self.device)

    def permutation(self, name: str, n: int, *, key: Hashable | None = None) -> torch.Tensor:
        if self.device.type == "meta":
            return torch.empty((n,), dtype=torch.int64, device="meta")
        return torch.randperm(n, generator=self._generator(name, key), device=self.device)
