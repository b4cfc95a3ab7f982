"""Draws the arguments of one rank for one call from a secret.

Every draw is named and keyed: its values depend on (secret, call, name, key) and on nothing else, so ranks may draw different
things in different orders. The default key is the rank; `key="all"` gives every rank the same values, and any other value
(such as a coordinate of the layout) is shared by the ranks that pass it.
"""

import hashlib
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

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


Option = TypeVar("Option")


class PlainChoices(random.Random):
    """Chooses what is usual, every time: the middle of a range, the first of a list, yes where that is likelier than no.

    Weights that it draws are equal, roots are rank 0, and nobody is idle. Bits are random all the same: they seed values.
    """

    def random(self) -> float:
        return 0.5

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        return mu

    def randint(self, a: int, b: int) -> int:
        return int((a + b) / 2)  # towards zero: the middle of -7 and 6 is no shift

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0 if stop is None else start

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def choices(self, population: Any, weights: Any = None, *, cum_weights: Any = None, k: int = 1) -> list[Any]:
        return [population[0]] * k

    def sample(self, population: Any, k: int, *, counts: Any = None) -> list[Any]:
        return list(population)[:k]


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
    even: bool = False
    """As the published benchmark draws: every rank holds as much as any other, and choices on the host are the usual ones
    (`PlainChoices`). For comparison with its figures only: what depends on such inputs is not right."""

    def kind_of(self, kinds: Mapping[str, float], *, published: str = "") -> str:
        """The kind of this call, the same on all ranks. `published`: the only one that the published benchmark has, if that
        is not the first."""
        chosen = self.random("kind", key="all").choices(list(kinds), list(kinds.values()))[0]
        return self.kind or (published if self.even and published else chosen)

    def in_turn(self, name: str, options: Sequence[Option]) -> Option:
        """One of the options, the same on all ranks: as many consecutive calls as there are options have each once, in an
        order that differs from turn to turn. For rare variants that are no kinds, since they take as long as others: drawn
        by chance, all calls of an evaluation may be without one. The published benchmark has the first."""
        turn, place = divmod(self.call, len(options))
        order = replace(self, call=turn).random(f"{name}, in turn", key="all").sample(range(len(options)), len(options))
        return options[0 if self.even else order[place]]

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

    def random(self, name: str, key: Hashable | None = None, *, values: bool = False) -> random.Random:
        """A Python generator, for splits, counts and other host-side choices. `values`: it decides none of these, but the
        contents of arguments, and is random also where all ranks are to hold equally much."""
        source = PlainChoices if self.even and not values else random.Random
        return source(self._seed(name, key))

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
