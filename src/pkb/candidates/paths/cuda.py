"""CUDA text as the analysis sees it: functions, and in each the calls, inline PTX, assignments and memory accesses.

Two readers fill these records: `parser` (tree-sitter, the extra `analysis`) and `tokens` (no dependency). Expressions stay
text, cut at MAX_TEXT, so that a chain of a million brackets costs no more than its length.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

MAX_TEXT = 400

FunctionKind = Literal["kernel", "device", "host", "macro"]


class Call(NamedTuple):
    name: str
    """The last part: `st` of `pkb::Multimem<T>::st`."""
    qualifier: str
    """What stands before it, without blanks: `pkb::Multimem<T>::`, `handle->`, or nothing."""
    arguments: tuple[str, ...]
    at: int
    """Offset in the text, like every `at` here."""


class Asm(NamedTuple):
    template: str
    operands: tuple[str, ...]
    """Expressions, in the order of %0, %1, ..."""
    names: tuple[str, ...]
    """`[name]` of each operand, or nothing."""
    at: int


class Bind(NamedTuple):
    """`type name = value` or `name = value`; `name[i] = value` is `indexed`."""

    type: str
    name: str
    value: str
    indexed: bool
    at: int


class Access(NamedTuple):
    """Memory is read or written through this pointer: `base[i]`, `*base`, `base->x`."""

    base: str
    at: int


class Parameter(NamedTuple):
    name: str
    type: str


@dataclass(frozen=True)
class Function:
    name: str
    kind: FunctionKind
    parameters: tuple[Parameter, ...]
    returns_pointer: bool
    at: int
    calls: tuple[Call, ...] = ()
    asms: tuple[Asm, ...] = ()
    binds: tuple[Bind, ...] = ()
    accesses: tuple[Access, ...] = ()
    mentions: dict[str, int] = field(default_factory=dict)
    """Every identifier of the body with its first offset."""


def cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT]
