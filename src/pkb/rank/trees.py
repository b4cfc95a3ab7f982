"""Arguments and outputs as bytes: nested lists, tuples and dicts of tensors, packed into an anonymous file.

The description of the tree is JSON; the bytes of all tensors lie one after another in the file. Nothing is pickled, and the
reader checks every length before it reads, since outputs come from a process that is not to be trusted.
"""

import ctypes
import fcntl
import mmap
import os
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed

ALIGNMENT = 64
MAX_NODES = 100_000
MAX_DEPTH = 100
"""Of structures inside structures; how deep the interpreter itself could follow differs between versions of Python."""
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
        torch.complex64, torch.complex128, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_COPY = 1 << 28
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

Tree = Any
Description = dict[str, Any]


class BadTree(Exception):
    """Not something that may be passed between ranks; the text says which part."""


def describe(tree: Tree) -> tuple[Description, list[torch.Tensor]]:
    """The JSON description of a tree and its tensors in order."""
    tensors: list[torch.Tensor] = []
    return _describe(tree, tensors, [0, 0], 0), tensors


def _describe(node: Tree, tensors: list[torch.Tensor], offset: list[int], depth: int) -> Description:
    if depth > MAX_DEPTH:
        raise BadTree(f"a structure nested more than {MAX_DEPTH} deep")
    offset[1] += 1
    if offset[1] > MAX_NODES:
        raise BadTree(f"a structure of more than {MAX_NODES} parts")
    if type(node) is torch.Tensor or type(node) is torch.nn.Parameter:
        if type(node) is torch.Tensor and node.__dict__:
            # Methods put onto one tensor run when the harness looks at it, after the clock has stopped.
            raise BadTree(f"a tensor with attributes of its own ({', '.join(list(node.__dict__)[:3])})")
        if node.layout is torch.sparse_coo:  # as its parts, so that whoever fills, hashes or copies tensors meets those
            parts = [_describe(part, tensors, offset, depth + 1) for part in (node._indices(), node._values())]
            return {"is": "sparse", "shape": list(node.shape), "coalesced": node.is_coalesced(), "items": parts}
        name = _NAMES.get(node.dtype)
        if name is None or node.layout is not torch.strided or node.device.type == "meta":
            raise BadTree(f"a tensor of dtype {node.dtype}, layout {node.layout} on device {node.device}")
        size = node.numel() * node.element_size()
        here = {"is": "tensor", "dtype": name, "shape": list(node.shape), "offset": offset[0], "bytes": size}
        offset[0] += -(-size // ALIGNMENT) * ALIGNMENT
        tensors.append(node)
        return here
    if node is None or type(node) in (bool, int, float, str):
        return {"is": "value", "value": node}
    if type(node) in (list, tuple):
        kind = "list" if type(node) is list else "tuple"
        return {"is": kind, "items": [_describe(item, tensors, offset, depth + 1) for item in node]}
    if isinstance(node, tuple):  # named tuples count as tuples
        return {"is": "tuple", "items": [_describe(item, tensors, offset, depth + 1) for item in node]}
    if type(node) is dict:
        items = [_describe(item, tensors, offset, depth + 1) for item in node.values()]
        return {"is": "dict", "keys": [str(key) for key in node], "items": items}
    if type(node) is torch.Size:
        return {"is": "tuple", "items": [{"is": "value", "value": int(item)} for item in node]}
    if type(node) is torch.nn.Linear:  # an argument of some problems; as an output it is refused like any other module
        return {
            "is": "linear",
            "items": [_describe(item, tensors, offset, depth + 1) for item in (node.weight, node.bias)],
        }
    if type(node).__name__ == "GroupRef":
        return {"is": "group", "axis": str(node.axis)}
    if isinstance(node, torch.distributed.ProcessGroup):
        return {"is": "group", "axis": ""}
    # A tensor subclass can compute when it is looked at, after the clock has stopped.
    if isinstance(node, torch.Tensor):
        raise BadTree(f"a subclass of torch.Tensor ({type(node).__module__}.{type(node).__qualname__})")
    raise BadTree(f"a {type(node).__module__}.{type(node).__qualname__}")


def tensors_in(tree: Tree) -> list[torch.Tensor]:
    """All tensors of a tree, in order."""
    return describe(tree)[1]


def pack(tree: Tree) -> tuple[Description, int]:
    """Describe a tree and write its tensors into a new anonymous file; the caller closes the descriptor.

    The file is mapped and copied into straight from the device, then sealed: nobody can change or shorten it any more, so
    that a reader may map it too. At production sizes that is what most of the time of an evaluation goes into.
    """
    description, tensors = describe(tree)
    fd = os.memfd_create("pkb-tree", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    parts, size = [], 0
    for tensor in tensors:
        raw = as_bytes(tensor)
        parts.append((size, raw))
        size += -(-raw.numel() // ALIGNMENT) * ALIGNMENT
    if size:
        os.truncate(fd, size)
        pages = mmap.mmap(fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ | mmap.PROT_WRITE)
        flat = torch.frombuffer(pages, dtype=torch.uint8)
        for offset, raw in parts:
            flat[offset : offset + raw.numel()].copy_(raw)
        del flat
        pages.close()
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return description, fd


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in row-major order as a flat tensor of bytes."""
    flat = torch.Tensor.contiguous(torch.Tensor.detach(tensor)).reshape(-1)
    if flat.is_conj() or flat.is_neg():
        flat = flat.resolve_conj().resolve_neg()
    return flat.view(torch.uint8)


def unpack(
    description: Description, fd: int, *, device: torch.device, group: Callable[[str], Any] | None = None
) -> Tree:
    """Rebuild a tree from its description and file, its tensors in fresh memory on the device.

    When it returns the file is mapped no more: a mapping that waits for the garbage collector keeps gigabytes, and goes at a
    moment of the collector's choosing, which may be in the middle of a timed call.
    """
    size = os.fstat(fd).st_size
    try:
        return _Builder(fd, size, _mapped(fd, size), device, group).build(description)
    except BadTree:
        raise
    except (AttributeError, TypeError, ValueError, IndexError, RuntimeError, OSError) as error:
        raise BadTree(f"a malformed description: {error}") from error


class _Builder:
    def __init__(
        self,
        fd: int,
        size: int,
        mapped: torch.Tensor | None,
        device: torch.device,
        group: Callable[[str], Any] | None,
    ) -> None:
        self._fd, self._size, self._mapped, self._device, self._group = fd, size, mapped, device, group
        self._count = 0

    def build(self, node: Any, depth: int = 0) -> Tree:
        self._count += 1
        if not isinstance(node, dict) or self._count > MAX_NODES or depth > MAX_DEPTH:
            raise BadTree("a malformed description")
        kind = node.get("is")
        if kind == "tensor":
            return _read_tensor(node, self._fd, self._size, self._mapped, self._device)
        if kind == "value":
            return node.get("value")
        if kind in ("list", "tuple", "dict"):
            items = [self.build(item, depth + 1) for item in node.get("items", [])]
            if kind == "dict":
                return dict(zip(node.get("keys", []), items, strict=True))
            return items if kind == "list" else tuple(items)
        if kind == "linear":
            return _linear(*(self.build(item, depth + 1) for item in node.get("items", [])))
        if kind == "sparse" and self._group is not None:  # an argument: no problem returns one
            indices, values = (self.build(item, depth + 1) for item in node["items"])
            return torch.sparse_coo_tensor(
                indices, values, node["shape"], is_coalesced=node["coalesced"], check_invariants=False
            )
        if kind == "group" and self._group is not None:
            return self._group(str(node.get("axis")))
        raise BadTree(f"a node of kind {kind!r}")


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> torch.nn.Linear:
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = torch.nn.Parameter(bias, requires_grad=False)
    return layer


def _mapped(fd: int, size: int) -> torch.Tensor | None:
    """The bytes of a sealed file where they lie. None for any other: who can shorten it would end its reader by a signal."""
    try:
        sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:  # no file that can be sealed
        return None
    if not sealed or not size:
        return None
    pages = mmap.mmap(fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the bytes cannot be written to
        return torch.frombuffer(pages, dtype=torch.uint8)


def _read_tensor(
    node: Description, fd: int, file_size: int, mapped: torch.Tensor | None, device: torch.device
) -> torch.Tensor:
    dtype = DTYPES.get(str(node.get("dtype")))
    shape, offset, size = node.get("shape"), node.get("offset"), node.get("bytes")
    if dtype is None or not isinstance(shape, list) or not isinstance(offset, int) or not isinstance(size, int):
        raise BadTree("a malformed tensor")
    count = 1
    for extent in shape:
        if type(extent) is not int or not 0 <= extent < 1 << 48:
            raise BadTree(f"a tensor of shape {shape}")
        count *= extent
    if count * dtype.itemsize != size or offset < 0 or offset + size > file_size:
        raise BadTree(f"a tensor of shape {shape} with {size} bytes at {offset} of {file_size}")
    if mapped is not None:
        return mapped[offset : offset + size].to(device, copy=True).view(dtype).reshape(shape)
    raw = torch.empty(size, dtype=torch.uint8)
    target = (ctypes.c_char * size).from_address(raw.data_ptr()) if size else b""
    view = memoryview(target).cast("B") if size else memoryview(b"")
    done = 0
    while done < size:
        got = os.preadv(fd, [view[done : done + _COPY]], offset + done)
        if got <= 0:
            raise BadTree("a file shorter than its description")
        done += got
    return raw.to(device).view(dtype).reshape(shape)


def digest(tree: Tree) -> list[str]:
    """A fingerprint of every tensor's bytes, cheap enough to take inside a timed window.

    It commits a rank to the outputs of all its calls before it learns which of them will be fetched and compared, so leaving
    work out or putting it off is found with the share of calls that are.
    """
    return [_digest(tensor) for tensor in describe(tree)[1]]


def _digest(tensor: torch.Tensor) -> str:
    raw = as_bytes(tensor)
    words = raw.numel() // 8
    total, weighted = 0, 0
    body = raw[: words * 8].view(torch.int64)
    step = 1 << 23
    for start in range(0, words, step):
        part = body[start : start + step]
        weights = torch.arange(start, start + part.numel(), device=part.device, dtype=torch.int64)
        total += int(part.sum())
        weighted += int((part * (weights * 2654435761 + 1)).sum())
    tail = bytes(raw[words * 8 :].cpu().tolist()).hex()
    return f"{total & (2**64 - 1):016x}{weighted & (2**64 - 1):016x}{tail}"
