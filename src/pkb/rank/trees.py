"""Arguments and outputs as bytes: nested lists, tuples and dicts of tensors, packed into an anonymous file.

The description of the tree is part of the protocol (`pkb.types.protocol.trees`); the bytes of all tensors lie one after another
in the file. Nothing is pickled, and the reader checks every length before it maps the file, since outputs come from a process
that is not to be trusted.
"""

import ctypes
import fcntl
import math
import mmap
import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed

from pkb.types.channel import SEALS, is_sealed
from pkb.types.protocol.limits import MAX_DEPTH, MAX_NAME, MAX_NODES, MAX_TEXT
from pkb.types.protocol.trees import DTYPES as DTYPE_NAMES
from pkb.types.protocol.trees import (
    BadDescription,
    DictNode,
    GroupNode,
    LinearNode,
    ListNode,
    Node,
    NonFiniteNode,
    SparseNode,
    TensorNode,
    TupleNode,
    ValueNode,
    tensor_nodes,
)

ALIGNMENT = 64
CHUNK_BYTES = 1 << 22
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in DTYPE_NAMES}
_NAMES = {getattr(torch, name): name for name in DTYPE_NAMES}

Tree = Any


class BadTree(Exception):
    """Not something that may be passed between ranks; the text says which part."""


def describe(tree: Tree) -> tuple[Node, list[torch.Tensor]]:
    """The description of a tree and its tensors in order."""
    describer = _Describer()
    try:
        return describer.node(tree, 1), describer.tensors
    except BadDescription as error:
        raise BadTree(str(error)) from error


class _Describer:
    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self._offset = 0
        self._nodes = 0

    def node(self, part: Tree, depth: int) -> Node:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise BadTree(f"a structure of more than {MAX_NODES} parts")
        if depth > MAX_DEPTH:
            raise BadTree("a structure nested too deeply")
        if type(part) is torch.Tensor or type(part) is torch.nn.Parameter:
            return self._sparse(part) if part.layout is torch.sparse_coo else self._tensor(part)
        if part is None or type(part) in (bool, int, float, str):
            return _value(part)
        if type(part) is list:
            return ListNode(self._items(part, depth))
        if type(part) is torch.Size:
            return TupleNode(tuple(ValueNode(int(extent)) for extent in part))
        if isinstance(part, tuple):  # named tuples count as tuples
            return TupleNode(self._items(part, depth))
        if type(part) is dict:
            return DictNode(tuple(map(_key, part)), self._items(part.values(), depth))
        if (
            type(part) is torch.nn.Linear
        ):  # an argument of some problems; as an output it is refused like any other module
            weight = self._tensor(part.weight)
            return LinearNode(weight, self._tensor(part.bias) if part.bias is not None else None)
        if type(part).__name__ == "GroupRef":
            return GroupNode(str(part.axis))
        if isinstance(part, torch.distributed.ProcessGroup):
            return GroupNode("")
        # A tensor subclass can compute when it is looked at, after the clock has stopped.
        if isinstance(part, torch.Tensor):
            raise BadTree(f"a subclass of torch.Tensor ({type(part).__module__}.{type(part).__qualname__})")
        raise BadTree(f"a {type(part).__module__}.{type(part).__qualname__}")

    def _items(self, parts: Any, depth: int) -> tuple[Node, ...]:
        return tuple([self.node(part, depth + 1) for part in parts])

    def _tensor(self, tensor: torch.Tensor) -> TensorNode:
        _refuse_own_attributes(tensor)
        name = _NAMES.get(tensor.dtype)
        if name is None or tensor.layout is not torch.strided or tensor.device.type == "meta":
            raise BadTree(f"a tensor of dtype {tensor.dtype}, layout {tensor.layout} on device {tensor.device}")
        size = tensor.numel() * tensor.element_size()
        here = TensorNode(name, tuple(tensor.shape), self._offset, size)
        self._offset += _aligned(size)
        self.tensors.append(tensor)
        return here

    def _sparse(self, tensor: torch.Tensor) -> SparseNode:
        _refuse_own_attributes(tensor)
        coalesced = tensor.is_coalesced()
        return SparseNode(
            tuple(tensor.shape), coalesced, self._tensor(tensor._indices()), self._tensor(tensor._values())
        )


def _refuse_own_attributes(tensor: torch.Tensor) -> None:
    """Methods put onto one tensor run when the harness looks at it, after the clock has stopped. Parameters carry marks of
    their own in honest code; they may not hide what a tensor has."""
    own = [name for name in tensor.__dict__ if type(tensor) is torch.Tensor or hasattr(torch.Tensor, str(name))]
    if own:
        raise BadTree(f"a tensor with attributes of its own ({', '.join(map(str, own[:3]))})")


def _value(value: Any) -> ValueNode | NonFiniteNode:
    if type(value) is float and not math.isfinite(value):
        return NonFiniteNode("nan" if value != value else "inf" if value > 0 else "-inf")
    if type(value) is int and not -(1 << 63) <= value <= 1 << 63:
        raise BadTree("an integer of more than 64 bits")
    if type(value) is str:
        _check_text(value, MAX_TEXT)
    return ValueNode(value)


def _key(key: Any) -> str:
    text = str(key)
    _check_text(text, MAX_NAME)
    return text


def _check_text(text: str, most: int) -> None:
    if len(text) > most:
        raise BadTree(f"a text of {len(text)} characters, where {most} are allowed")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadTree("a text that is no Unicode") from None


def tensors_in(tree: Tree) -> list[torch.Tensor]:
    """All tensors of a tree, in order."""
    return describe(tree)[1]


def pack(tree: Tree) -> tuple[Node, int]:
    """Describe a tree and write its tensors into a new anonymous file; the caller closes the descriptor."""
    description, tensors = describe(tree)
    return description, pack_tensors(tensors)


def pack_tensors(tensors: Sequence[torch.Tensor]) -> int:
    """The file is written, then sealed: nobody can change or shorten it any more, so that a reader may map it. To map it for
    writing as well takes twice as long: its pages would be cleared first. At production sizes much of an evaluation is this.
    """
    fd = os.memfd_create("pkb-tree", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    parts, size = file_parts(tensors)
    os.truncate(fd, size)
    for offset, raw in parts:
        for at in range(0, raw.numel(), CHUNK_BYTES):
            _write(fd, offset + at, raw[at : at + CHUNK_BYTES])
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd


def _write(fd: int, offset: int, raw: torch.Tensor) -> None:
    here = raw if raw.is_cpu else _staging()[: raw.numel()].copy_(raw)
    left = memoryview((ctypes.c_char * here.numel()).from_address(here.data_ptr())).cast("B")
    while left:
        written = os.pwrite(fd, left, offset)
        left, offset = left[written:], offset + written


@cache
def _staging() -> torch.Tensor:
    """Where a device copies to in one go."""
    return torch.empty(CHUNK_BYTES, dtype=torch.uint8, pin_memory=True)


def file_parts(tensors: Sequence[torch.Tensor]) -> tuple[list[tuple[int, torch.Tensor]], int]:
    """The bytes of each tensor and where they lie in a file, and the size of that."""
    parts, size = [], 0
    for tensor in tensors:
        raw = as_bytes(tensor)
        parts.append((size, raw))
        size += _aligned(raw.numel())
    return parts, size


def copy_into(pages: mmap.mmap, parts: Sequence[tuple[int, torch.Tensor]]) -> None:
    flat = torch.frombuffer(pages, dtype=torch.uint8)
    for offset, raw in parts:
        flat[offset : offset + raw.numel()].copy_(raw)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in row-major order as a flat tensor of bytes."""
    flat = torch.Tensor.contiguous(torch.Tensor.detach(tensor)).reshape(-1)
    if flat.is_conj() or flat.is_neg():
        flat = flat.resolve_conj().resolve_neg()
    return flat.view(torch.uint8)


def unpack(
    description: Node,
    fd: int,
    *,
    device: torch.device,
    group: Callable[[str], Any] | None = None,
    kept: bool = False,
) -> Tree:
    """Rebuild a tree from its description and file, its tensors in fresh memory on the device. `kept`: the file may be one that
    its writer uses again (`kept_files.py`), and longer.

    When it returns the file is mapped no more: a mapping that waits for the garbage collector keeps gigabytes, and goes at a
    moment of the collector's choosing, which may be in the middle of a timed call.
    """
    try:
        size = _file_bytes(description)
        there = os.fstat(fd).st_size
        if there < size or (there > size and not kept):
            raise BadTree(f"a file of {there} bytes for tensors that take {size}")
        if not is_sealed(fd, kept=kept):  # who can shorten it would end its reader by a signal
            raise BadTree("a file that is not sealed")
        mapped = _mapped(fd, size)
        return _Builder(lambda node: _read_tensor(node, mapped, device), group).build(description)
    except BadTree:
        raise
    except (TypeError, ValueError, RuntimeError, OSError) as error:
        raise BadTree(f"a malformed description: {error}") from error


def copied(tree: Tree, *, group: Callable[[str], Any]) -> Tree:
    """The tree as `unpack` would give it to somebody else: contiguous tensors in memory of their own."""
    description, tensors = describe(tree)
    following = iter(tensors)
    return _Builder(
        lambda _: torch.empty_like(t := next(following), memory_format=torch.contiguous_format).copy_(t), group
    ).build(description)


def _file_bytes(description: Node) -> int:
    """Of the file that holds the tensors of a tree and nothing else: all of it will be mapped, holes included."""
    nodes = tensor_nodes(description)
    for node in nodes:
        if math.prod(node.shape) * DTYPES[node.dtype].itemsize != node.size:
            raise BadTree(f"a tensor of shape {list(node.shape)} with {node.size} bytes")
    return sum(_aligned(node.size) for node in nodes)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class _Builder:
    def __init__(self, tensor: Callable[[TensorNode], torch.Tensor], group: Callable[[str], Any] | None) -> None:
        self._tensor, self._group = tensor, group

    def build(self, node: Node) -> Tree:
        match node:
            case TensorNode():
                return self._tensor(node)
            case ValueNode():
                return node.value
            case NonFiniteNode():
                return float(node.value)
            case ListNode():
                return [self.build(item) for item in node.items]
            case TupleNode():
                return tuple([self.build(item) for item in node.items])
            case DictNode():
                return dict(zip(node.keys, [self.build(item) for item in node.items], strict=True))
        if self._group is None:  # the others are arguments only: no problem returns one
            raise BadTree(f"a {type(node).__name__}")
        match node:
            case LinearNode():
                return _linear(self._tensor(node.weight), self._tensor(node.bias) if node.bias else None)
            case SparseNode():
                indices, values = self._tensor(node.indices), self._tensor(node.values)
                return torch.sparse_coo_tensor(
                    indices, values, node.shape, is_coalesced=node.coalesced, check_invariants=False
                )
            case GroupNode():
                return self._group(node.axis)


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> torch.nn.Linear:
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = torch.nn.Parameter(bias, requires_grad=False)
    return layer


def _mapped(fd: int, size: int) -> torch.Tensor:
    """The bytes of a sealed file where they lie."""
    if not size:
        return torch.empty(0, dtype=torch.uint8)
    pages = mmap.mmap(fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the bytes cannot be written to
        return torch.frombuffer(pages, dtype=torch.uint8)


def _read_tensor(node: TensorNode, mapped: torch.Tensor, device: torch.device) -> torch.Tensor:
    end = node.offset + node.size
    if end > mapped.numel():
        raise BadTree(f"{node.size} bytes at {node.offset} of {mapped.numel()}")
    return mapped[node.offset : end].to(device, copy=True).view(DTYPES[node.dtype]).reshape(node.shape)
