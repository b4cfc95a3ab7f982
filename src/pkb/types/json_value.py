"""What JSON can say, as Python has it."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "str | float | Mapping[str, Json] | Sequence[Json] | None"
"""For what is written: a type checker refuses what no JSON can hold. What is read has a type of its own."""
