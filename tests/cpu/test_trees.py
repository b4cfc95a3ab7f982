"""Trees: what is packed comes back bit for bit, and no description a rank can send does worse than being refused."""

import fcntl
import gc
import json
import os
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pkb.rank.trees import DTYPES, BadTree, as_bytes, describe, pack, unpack
from pkb.rank.window.host import HostWindow
from pkb.rank.window.seals import Seals
from pkb.types.channel import SEALS as FILE_SEALS
from pkb.types.protocol.codec import Malformed, decode, encode
from pkb.types.protocol.limits import MAX_DEPTH, MAX_NAME, MAX_NODES
from pkb.types.protocol.replies import OutputReply
from pkb.types.protocol.trees import (
    DictNode,
    LinearNode,
    ListNode,
    Node,
    SparseNode,
    TensorNode,
    TupleNode,
    tensor_nodes,
)

CPU = torch.device("cpu")
SEALS = Seals(HostWindow(), 0)


def round_trip(tree: Any) -> Any:
    """Through the channel's bytes, as between two processes."""
    description, fd = pack(tree)
    try:
        return unpack(decode(encode(OutputReply(0, description)), (OutputReply,)).tree, fd, device=CPU)
    finally:
        os.close(fd)


def same(a: Any, b: Any) -> bool:
    """Structure, dtype, shape and every bit (so that NaN equals itself and -0.0 is not 0.0)."""
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and bool((as_bytes(a) == as_bytes(b)).all())
        )
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return isinstance(b, type(a)) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


def random_bits(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    count = torch.Size(shape).numel()
    if dtype is torch.bool:
        return torch.randint(0, 2, shape).bool()
    return torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8).view(dtype).reshape(shape)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (5, 0, 3), (7,), (3, 5), (2, 3, 4, 5)])
def test_every_dtype_and_shape(name: str, shape: tuple[int, ...]) -> None:
    tensor = random_bits(DTYPES[name], *shape)
    assert same(round_trip(tensor), tensor)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "bool", "complex64", "float8_e4m3fn", "int64"])
def test_strides_do_not_travel(name: str) -> None:
    base = random_bits(DTYPES[name], 6, 8)
    for view in (base.t(), base[::2, 1::3], base[:, 3], base[2], base.unsqueeze(1).expand(6, 4, 8), base[1:1]):
        back = round_trip(view)
        assert back.is_contiguous()
        assert back.shape == view.shape
        assert bool((as_bytes(back) == as_bytes(view.clone())).all())


def test_lazily_conjugated_and_negated_tensors_carry_their_values() -> None:
    """`.conj()` and `.imag` of it are flags on shared memory; the plain bytes would be the wrong numbers."""
    tensor = torch.randn(4, 5, dtype=torch.complex64)
    assert bool((round_trip(tensor.conj()) == tensor.conj()).all())
    assert bool((round_trip(tensor.conj().imag) == tensor.conj().imag).all())
    assert SEALS.digest(tensor.conj()) == SEALS.digest(tensor.conj().resolve_conj())


def test_gradients_and_parameters_travel_as_plain_tensors() -> None:
    parameter = torch.nn.Parameter(torch.randn(3))
    back = round_trip([parameter, torch.randn(2, requires_grad=True) * 2])
    assert [type(tensor) for tensor in back] == [torch.Tensor, torch.Tensor]
    assert not any(tensor.requires_grad for tensor in back)
    assert bool((back[0] == parameter).all())


Pair = namedtuple("Pair", "first second")


def test_nested_structures() -> None:
    tree = {
        "a": [torch.randn(3), (torch.arange(4), None, True, 2.5, "text", [])],
        "b": {"c": torch.tensor(1), "d": ()},
        "e": -7,
        "f": {},
    }
    assert same(round_trip(tree), tree)
    assert same(round_trip(Pair(torch.ones(2), 3)), (torch.ones(2), 3)), "named tuples count as tuples"
    assert round_trip(torch.Size([2, 3])) == (2, 3)


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False),
    st.text(max_size=5).filter(str.isprintable),
    st.builds(
        lambda name, shape: random_bits(DTYPES[name], *shape),
        st.sampled_from(sorted(DTYPES)),
        st.lists(st.integers(0, 4), max_size=3),
    ),
)
trees: Any = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(trees)
@settings(max_examples=150, deadline=None)
def test_any_tree_comes_back(tree: Any) -> None:
    assert same(round_trip(tree), tree)


class Lazy(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "item",
    [
        torch.randn(2).as_subclass(Lazy),
        torch.eye(3).to_sparse_csr(),
        object(),
        {1, 2},
        b"bytes",
        lambda: None,
        1j,
        range(3),
    ],
    ids=lambda item: type(item).__name__,
)
def test_what_may_not_travel_is_refused(item: Any) -> None:
    with pytest.raises(BadTree):
        pack([torch.ones(1), item])


# -- hostile descriptions ---------------------------------------------------------------------------------------------


@contextmanager
def packed(tree: Any) -> Iterator[tuple[Node, int]]:
    description, fd = pack(tree)
    try:
        yield description, fd
    finally:
        os.close(fd)


def tensor_node(**changes: Any) -> TensorNode:
    """Of a float32 tensor of shape (4, 4) at the start of a file of 64 bytes."""
    return replace(TensorNode("float32", (4, 4), 0, 64), **changes)


def raw(**changes: Any) -> dict[str, Any]:
    """The same as it travels."""
    return {"is": "TensorNode", "dtype": "float32", "shape": [4, 4], "offset": 0, "size": 64} | changes


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in raw().items() if key != name}


def nested(levels: int) -> dict[str, Any]:
    node: dict[str, Any] = {"is": "ListNode", "items": []}
    for _ in range(levels - 1):
        node = {"is": "ListNode", "items": [node]}
    return node


VALUE = {"is": "ValueNode", "value": 0}
MALFORMED: dict[str, Any] = {
    "negative extent": raw(shape=[-4, -4]),
    "one negative extent": raw(shape=[-1, 16]),
    "negative offset": raw(offset=-64),
    "negative bytes": raw(shape=[0], size=-4),
    "huge offset": raw(offset=2**70),
    "overflowing extents": raw(shape=[2**32, 2**32, 2**32], size=0),
    "unknown dtype": raw(dtype="float31"),
    "dtype of another type": raw(dtype=["float32"]),
    "no shape": without("shape"),
    "no offset": without("offset"),
    "shape is a number": raw(shape=16),
    "more dimensions than torch has": raw(shape=[1] * 65, size=4),
    "extent is text": raw(shape=["4", "4"]),
    "extent is a fraction": raw(shape=[4.0, 4.0]),
    "offset is text": raw(offset="0"),
    "bytes is a fraction": raw(size=64.0),
    "one member more": raw(more=1),
    "no kind": {},
    "unknown kind": {"is": "object"},
    "kind of another type": {"is": ["TensorNode"]},
    "list": [],
    "None": None,
    "text": "TensorNode",
    "a bad one inside": {"is": "ListNode", "items": [raw(), {"is": "DictNode", "keys": ["a"], "items": [7]}]},
    "extent beyond 64 bits beside zero": raw(shape=[0, 2**70], size=0),
    "items is a number": {"is": "ListNode", "items": 7},
    "keys is a number": {"is": "DictNode", "keys": 7, "items": []},
    "more keys than items": {"is": "DictNode", "keys": ["a", "b"], "items": [raw()]},
    "a key that is a list": {"is": "DictNode", "keys": [[]], "items": [raw()]},
    "a long key": {"is": "DictNode", "keys": ["k" * (MAX_NAME + 1)], "items": [raw()]},
    "a layer without weights": {"is": "LinearNode", "items": []},
    "a layer of a text": {"is": "LinearNode", "weight": {"is": "ValueNode", "value": "x"}, "bias": None},
    "too many parts": {"is": "ListNode", "items": [VALUE] * MAX_NODES},
    "too many parts in all": {"is": "ListNode", "items": [{"is": "ListNode", "items": [VALUE] * 100}] * 100},
    "one level too deep": nested(MAX_DEPTH + 1),
    "deep": nested(300),
}


@pytest.mark.parametrize("node", MALFORMED.values(), ids=MALFORMED.keys())
def test_hostile_descriptions_do_not_get_past_the_codec(node: Any) -> None:
    body = json.dumps({"is": "OutputReply", "slot": 0, "tree": node}).encode()
    with pytest.raises(Malformed):
        decode(body, (OutputReply,))


def test_the_deepest_and_the_widest_tree_are_read() -> None:
    for node in (nested(MAX_DEPTH), {"is": "ListNode", "items": [VALUE] * (MAX_NODES - 1)}):
        body = json.dumps({"is": "OutputReply", "slot": 0, "tree": node}).encode()
        assert json.loads(encode(decode(body, (OutputReply,))))["tree"] == node, "and do not grow when relayed"


def test_what_is_too_large_to_travel_is_refused_where_it_is_packed() -> None:
    deep: Any = []
    for _ in range(MAX_DEPTH):
        deep = [deep]
    for tree in (deep, [0] * MAX_NODES, {"k" * (MAX_NAME + 1): 0}, ["x" * 5000], [1 << 70], ["\ud800"]):
        with pytest.raises(BadTree):
            pack(tree)


LIES: dict[str, Node] = {
    "offset past the end": tensor_node(offset=64),
    "one byte past the end": tensor_node(offset=1),
    "huge extent": tensor_node(shape=(2**40,), size=2**42),
    "more bytes than elements": tensor_node(shape=(4, 3)),
    "fewer bytes than elements": tensor_node(size=60),
    "wrong element size": tensor_node(dtype="float64"),
    "sparse, which no output is": SparseNode((2,), True, tensor_node(), tensor_node()),
    "a layer, which no output is": LinearNode(tensor_node(), None),
    "one of them inside": TupleNode((tensor_node(), DictNode(("a",), (tensor_node(offset=1),)))),
}


@pytest.mark.parametrize("node", LIES.values(), ids=LIES.keys())
def test_descriptions_that_do_not_fit_the_file_are_refused(node: Node) -> None:
    with packed(torch.ones(4, 4)) as (_, fd), pytest.raises(BadTree):
        unpack(node, fd, device=CPU)


def test_the_same_bytes_named_twice_are_refused() -> None:
    """A file holds what is described and nothing else, so that mapping it costs no more than its tensors."""
    with packed(torch.arange(16, dtype=torch.float32)) as (_, fd), pytest.raises(BadTree, match="64 bytes for tensors"):
        unpack(ListNode((tensor_node(), tensor_node(shape=(8,), offset=32, size=32))), fd, device=CPU)


def test_a_sealed_file_of_holes_is_not_mapped() -> None:
    """Reading a hole takes memory, and the reader's."""
    fd = os.memfd_create("sparse", os.MFD_ALLOW_SEALING)
    os.truncate(fd, 1 << 40)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, FILE_SEALS)
    try:
        for node in (tensor_node(), tensor_node(offset=1 << 39), tensor_node(size=1 << 40)):
            with pytest.raises(BadTree):
                unpack(node, fd, device=CPU)
    finally:
        os.close(fd)


def test_an_odd_offset_is_only_unusual() -> None:
    """Bytes are copied before they are viewed, so no offset can make a misaligned tensor."""
    with packed(torch.arange(64, dtype=torch.uint8)) as (_, fd):
        node = tensor_node(shape=(3,), dtype="float64", offset=5, size=24)
        assert unpack(node, fd, device=CPU).shape == (3,)


@contextmanager
def unsealed(fd: int) -> Iterator[int]:
    """The same bytes in a file that its writer can still change, as a hostile rank would send it."""
    copy_of = os.memfd_create("copy")
    try:
        os.pwrite(copy_of, os.pread(fd, os.fstat(fd).st_size, 0), 0)
        yield copy_of
    finally:
        os.close(copy_of)


def test_what_is_packed_can_no_longer_be_changed() -> None:
    with packed(torch.ones(1000)) as (_, fd):
        for change in (lambda: os.truncate(fd, 10), lambda: os.pwrite(fd, b"x", 0)):
            with pytest.raises(PermissionError):
                change()


def test_a_file_without_seals_is_refused() -> None:
    """Its owner could shorten it while it is mapped, and the reader would die of it."""
    with (
        packed(torch.randn(1000)) as (description, fd),
        unsealed(fd) as other,
        pytest.raises(BadTree, match="not sealed"),
    ):
        unpack(description, other, device=CPU)


def test_what_is_read_is_memory_of_its_own() -> None:
    with packed(torch.ones(1000)) as (description, fd):
        first = unpack(description, fd, device=CPU)
        first += 1
        assert same(unpack(description, fd, device=CPU), torch.ones(1000))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Any) -> None:
    """The rank chooses the descriptor; what reading it says must fall on the rank, not on the oracle."""
    path = tmp_path / "output"
    path.write_bytes(b"\0" * 64)
    fd = os.open(path, os.O_WRONLY)
    try:
        with pytest.raises(BadTree):
            unpack(tensor_node(), fd, device=CPU)
    finally:
        os.close(fd)


scalars = st.none() | st.booleans() | st.integers(-10, 2**40) | st.floats(allow_nan=False) | st.text(max_size=4)


@given(
    st.dictionaries(
        st.sampled_from(["is", "dtype", "shape", "offset", "size"]),
        scalars | st.lists(scalars, max_size=4) | st.sampled_from(["TensorNode", "ListNode", "ValueNode", "float32"]),
    )
)
@settings(max_examples=300, deadline=None)
def test_random_changes_to_a_tensor_node(changes: dict[str, Any]) -> None:
    body = json.dumps({"is": "OutputReply", "slot": 0, "tree": raw(**changes)}).encode()
    with packed(torch.ones(4, 4)) as (_, fd), suppress(BadTree, Malformed):
        unpack(decode(body, (OutputReply,)).tree, fd, device=CPU)


def test_descriptions_count_every_tensor_once_and_in_order() -> None:
    first, second = torch.ones(3), torch.zeros(100)
    description, tensors = describe([first, {"x": second, "again": first}])
    assert [tensor is other for tensor, other in zip(tensors, (first, second, first), strict=True)] == [True] * 3
    assert [node.offset for node in tensor_nodes(description)] == [0, 64, 64 + 448]


def test_nothing_stays_mapped_without_the_garbage_collector() -> None:
    description, fd = pack({"a": torch.ones(1 << 16), "b": [torch.ones(3)]})

    def mappings() -> int:
        with open("/proc/self/maps") as maps:
            return sum("pkb-tree" in line for line in maps)

    gc.disable()
    try:
        before = mappings()
        kept = unpack(description, fd, device=CPU)
        with suppress(BadTree):
            unpack(tensor_node(offset=1 << 40), fd, device=CPU)
        assert mappings() == before == 0
        assert same(kept["a"], torch.ones(1 << 16))
    finally:
        gc.enable()
        os.close(fd)
