"""Descriptions of arguments and outputs: nested lists, tuples and dicts of tensors whose bytes lie in one file.

The judge checks and relays them, and looks no further: what the bytes mean is the oracle's business.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pkb.types.protocol.codec import AtMost, Between
from pkb.types.protocol.limits import MAX_DEPTH, MAX_DIMENSIONS, MAX_ELEMENTS, MAX_NAME, MAX_NODES, MAX_TEXT

Dtype = Literal[
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128", "int64", "int32",
    "int16", "int8", "uint8", "bool",
]  # fmt: skip
DTYPES: tuple[Dtype, ...] = get_args(Dtype)

Name = Annotated[str, AtMost(MAX_NAME)]
Shape = Annotated[tuple[Annotated[int, Between(0, MAX_ELEMENTS)], ...], AtMost(MAX_DIMENSIONS)]
FileOffset = Annotated[int, Between(0, 1 << 53)]


class BadDescription(ValueError):
    """Not something that may be passed between ranks; the text says which part."""


@dataclass(frozen=True)
class TensorNode:
    dtype: Dtype
    shape: Shape
    offset: FileOffset
    size: FileOffset
    """In bytes."""

    def __post_init__(self) -> None:
        if math.prod(self.shape) > MAX_ELEMENTS:
            raise BadDescription(f"a tensor of more than {MAX_ELEMENTS} elements")


@dataclass(frozen=True)
class ValueNode:
    value: bool | int | float | Annotated[str, AtMost(MAX_TEXT)] | None


@dataclass(frozen=True)
class NonFiniteNode:
    """A float that JSON has no number for."""

    value: Literal["nan", "inf", "-inf"]


@dataclass(frozen=True)
class ListNode:
    items: Annotated[tuple["Node", ...], AtMost(MAX_NODES)]


@dataclass(frozen=True)
class TupleNode:
    items: Annotated[tuple["Node", ...], AtMost(MAX_NODES)]


@dataclass(frozen=True)
class DictNode:
    keys: Annotated[tuple[Name, ...], AtMost(MAX_NODES)]
    items: Annotated[tuple["Node", ...], AtMost(MAX_NODES)]

    def __post_init__(self) -> None:
        if len(self.keys) != len(self.items):
            raise BadDescription(f"{len(self.keys)} keys for {len(self.items)} items")


@dataclass(frozen=True)
class SparseNode:
    """As its parts, so that whoever fills, hashes or copies tensors meets those. An argument only."""

    shape: Shape
    coalesced: bool
    indices: TensorNode
    values: TensorNode


@dataclass(frozen=True)
class LinearNode:
    """A `torch.nn.Linear`. An argument only."""

    weight: TensorNode
    bias: TensorNode | None


@dataclass(frozen=True)
class GroupNode:
    """A process group, by the axis of the layout; an empty name for one that is only mentioned."""

    axis: Name


Node = TensorNode | ValueNode | NonFiniteNode | ListNode | TupleNode | DictNode | SparseNode | LinearNode | GroupNode


def parts_of(node: Node) -> tuple[Node, ...]:
    match node:
        case ListNode() | TupleNode() | DictNode():
            return node.items
        case SparseNode():
            return (node.indices, node.values)
        case LinearNode():
            return (node.weight,) if node.bias is None else (node.weight, node.bias)
    return ()


def walk(node: Node, depth: int = 1) -> Iterator[tuple[Node, int]]:
    """Every node with its depth."""
    yield node, depth
    for part in parts_of(node):
        yield from walk(part, depth + 1)


def check_size(tree: Node) -> None:
    """Raises `BadDescription` for more parts or levels than a tree may have."""
    for count, (_, depth) in enumerate(walk(tree), start=1):
        if count > MAX_NODES:
            raise BadDescription(f"a structure of more than {MAX_NODES} parts")
        if depth > MAX_DEPTH:
            raise BadDescription(f"a structure of more than {MAX_DEPTH} levels")


def tensor_nodes(tree: Node) -> list[TensorNode]:
    """In the order in which their bytes lie in the file."""
    return [node for node, _ in walk(tree) if isinstance(node, TensorNode)]
