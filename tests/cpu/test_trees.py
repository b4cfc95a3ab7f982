"""Trees: what is packed comes back bit for bit, and no description a rank can send does worse than being refused."""

import copy
import gc
import json
import os
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pkb.rank.trees import DTYPES, MAX_DEPTH, MAX_NODES, BadTree, as_bytes, describe, digest, pack, unpack

CPU = torch.device("cpu")


def round_trip(tree: Any) -> Any:
    """Through JSON, as between two processes."""
    description, fd = pack(tree)
    try:
        return unpack(json.loads(json.dumps(description)), fd, device=CPU)
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
    assert digest(tensor.conj()) == digest(tensor.conj().resolve_conj())


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
    st.text(max_size=5),
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
def packed(tree: Any) -> Iterator[tuple[dict[str, Any], int]]:
    description, fd = pack(tree)
    try:
        yield description, fd
    finally:
        os.close(fd)


def tensor_node(**changes: Any) -> dict[str, Any]:
    """Of a float32 tensor of shape (4, 4) at the start of a file of 64 bytes."""
    return {"is": "tensor", "dtype": "float32", "shape": [4, 4], "offset": 0, "bytes": 64} | changes


HOSTILE: dict[str, Any] = {
    "negative extent": tensor_node(shape=[-4, -4]),
    "one negative extent": tensor_node(shape=[-1, 16]),
    "negative offset": tensor_node(offset=-64),
    "negative bytes": tensor_node(shape=[0], bytes=-4),
    "offset past the end": tensor_node(offset=64),
    "one byte past the end": tensor_node(offset=1),
    "huge offset": tensor_node(offset=2**70),
    "huge extent": tensor_node(shape=[2**40], bytes=2**42),
    "overflowing extents": tensor_node(shape=[2**32, 2**32, 2**32], bytes=0),
    "more bytes than elements": tensor_node(shape=[4, 3]),
    "fewer bytes than elements": tensor_node(bytes=60),
    "wrong element size": tensor_node(dtype="float64"),
    "unknown dtype": tensor_node(dtype="float31"),
    "dtype of another type": tensor_node(dtype=["float32"]),
    "no shape": {k: v for k, v in tensor_node().items() if k != "shape"},
    "no offset": {k: v for k, v in tensor_node().items() if k != "offset"},
    "shape is a number": tensor_node(shape=16),
    "extent is text": tensor_node(shape=["4", "4"]),
    "extent is a fraction": tensor_node(shape=[4.0, 4.0]),
    "offset is text": tensor_node(offset="0"),
    "bytes is a fraction": tensor_node(bytes=64.0),
    "no kind": {},
    "unknown kind": {"is": "object"},
    "kind of another type": {"is": ["tensor"]},
    "group where there is none": {"is": "group", "axis": "world"},
    "sparse, which no output is": {"is": "sparse", "shape": [2], "coalesced": True, "items": []},
    "list": [],
    "None": None,
    "text": "tensor",
    "a bad one inside": {"is": "list", "items": [tensor_node(), {"is": "dict", "keys": ["a"], "items": [7]}]},
}
ESCAPES: dict[str, Any] = {
    "extent beyond 64 bits beside zero": tensor_node(shape=[0, 2**70], bytes=0),
    "extents whose product overflows beside zero": tensor_node(shape=[0, 2**62, 2**62], bytes=0),
    "items is a number": {"is": "list", "items": 7},
    "keys is a number": {"is": "dict", "keys": 7, "items": []},
    "more keys than items": {"is": "dict", "keys": ["a", "b"], "items": [tensor_node()]},
    "a key that is a list": {"is": "dict", "keys": [[]], "items": [tensor_node()]},
    "a layer without weights": {"is": "linear", "items": []},
    "a layer of a text": {"is": "linear", "items": [{"is": "value", "value": "x"}, {"is": "value", "value": None}]},
}
NESTED: dict[str, Any] = {"is": "list", "items": []}
for _ in range(MAX_DEPTH + 1):
    NESTED = {"is": "list", "items": [NESTED]}
ESCAPES["deep"] = NESTED


def refuse(node: Any) -> None:
    with packed(torch.ones(4, 4)) as (_, fd), pytest.raises(BadTree):
        unpack(node, fd, device=CPU)


@pytest.mark.parametrize("node", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_descriptions_are_refused(node: Any) -> None:
    refuse(node)


@pytest.mark.parametrize("node", ESCAPES.values(), ids=ESCAPES.keys())
def test_these_too(node: Any) -> None:
    """Today the oracle dies of them or not depending on what it checked before; the reader itself should refuse."""
    refuse(node)


def test_how_deep_a_tree_may_be_does_not_depend_on_the_interpreter() -> None:
    tree: Any = torch.ones(2)
    for _ in range(MAX_DEPTH):
        tree = [tree]
    with packed(tree) as (description, fd):
        assert describe(unpack(description, fd, device=CPU))[0] == description
    with pytest.raises(BadTree, match=f"more than {MAX_DEPTH} deep"):
        describe([tree])


def test_a_description_of_a_million_nodes_is_refused() -> None:
    refuse({"is": "list", "items": [{"is": "value", "value": 0}] * (MAX_NODES + 1)})


def test_overlapping_tensors_are_read_into_memory_of_their_own() -> None:
    """Nothing forbids naming the same bytes twice; it must not make two outputs one tensor on the oracle."""
    with packed(torch.arange(16, dtype=torch.float32)) as (_, fd):
        node = {"is": "list", "items": [tensor_node(), tensor_node(shape=[8], offset=32, bytes=32)]}
        whole, half = unpack(node, fd, device=CPU)
        whole.zero_()
        assert half.tolist() == [8, 9, 10, 11, 12, 13, 14, 15]


def test_an_odd_offset_is_only_unusual() -> None:
    """Bytes are copied before they are viewed, so no offset can make a misaligned tensor."""
    with packed(torch.arange(64, dtype=torch.uint8)) as (_, fd):
        node = tensor_node(shape=[3], dtype="float64", offset=5, bytes=24)
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
        with pytest.raises(PermissionError):
            os.truncate(fd, 10)
        with pytest.raises(PermissionError):
            os.pwrite(fd, b"x", 0)


def test_a_file_without_seals_is_read_as_well() -> None:
    tensor = torch.randn(1000)
    with packed(tensor) as (description, fd), unsealed(fd) as other:
        assert same(unpack(description, other, device=CPU), tensor)


def test_what_is_read_is_memory_of_its_own() -> None:
    with packed(torch.ones(1000)) as (description, fd):
        first = unpack(description, fd, device=CPU)
        first += 1
        assert same(unpack(description, fd, device=CPU), torch.ones(1000))


def test_a_file_cut_short_after_it_was_described() -> None:
    with packed(torch.ones(1000)) as (description, sealed), unsealed(sealed) as fd:
        os.truncate(fd, 3999)
        with pytest.raises(BadTree):
            unpack(description, fd, device=CPU)
        os.truncate(fd, 0)
        with pytest.raises(BadTree):
            unpack(description, fd, device=CPU)


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
        st.sampled_from(["is", "dtype", "shape", "offset", "bytes"]),
        scalars | st.lists(scalars, max_size=4) | st.sampled_from(["tensor", "list", "dict", "value", "float32"]),
    )
)
@settings(max_examples=300, deadline=None)
def test_random_changes_to_a_tensor_node(changes: dict[str, Any]) -> None:
    with packed(torch.ones(4, 4)) as (_, fd), suppress(BadTree):
        unpack(tensor_node(**changes), fd, device=CPU)


# -- digest -----------------------------------------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=200), st.data())
@settings(max_examples=200, deadline=None)
def test_any_change_of_one_byte_changes_the_digest(data: bytes, draw: st.DataObject) -> None:
    where = draw.draw(st.integers(0, len(data) - 1))
    change = draw.draw(st.integers(1, 255))
    before = torch.tensor(list(data), dtype=torch.uint8)
    after = before.clone()
    after[where] ^= change
    assert digest(before) == digest(before.clone())
    assert digest(before) != digest(after)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=30), st.data())
@settings(max_examples=100, deadline=None)
def test_exchanged_words_change_the_digest(words: list[int], draw: st.DataObject) -> None:
    """A plain sum would not see two rows exchanged."""
    i, j = (draw.draw(st.integers(0, len(words) - 1)) for _ in range(2))
    swapped = copy.copy(words)
    swapped[i], swapped[j] = words[j], words[i]
    assert (digest(torch.tensor(words)) == digest(torch.tensor(swapped))) == (words == swapped)


def test_the_digest_is_of_values_in_order_not_of_memory() -> None:
    base = torch.randn(6, 8)
    assert digest(base.t()) == digest(base.t().contiguous())
    assert digest(base.t()) != digest(base)
    assert digest([base, base.t()]) == digest(base) + digest(base.t())
    assert digest({"a": 1, "b": "text"}) == []


def test_signs_of_zero_and_payloads_of_nan_count() -> None:
    assert digest(torch.tensor([0.0])) != digest(torch.tensor([-0.0]))
    nan = torch.tensor([float("nan")])
    assert digest(nan) == digest(nan.clone())


def test_large_tensors_are_covered_to_the_last_element() -> None:
    """Longer than one block of the sum."""
    large = torch.zeros((1 << 23) + 5, dtype=torch.int64)
    before = digest(large)
    for where in (0, (1 << 23) - 1, 1 << 23, -1):
        large[where] = 1
        assert digest(large) != before
        large[where] = 0
    assert digest(large) == before


def test_descriptions_count_every_tensor_once_and_in_order() -> None:
    first, second = torch.ones(3), torch.zeros(100)
    description, tensors = describe([first, {"x": second, "again": first}])
    assert [tensor is other for tensor, other in zip(tensors, (first, second, first), strict=True)] == [True] * 3
    offsets = [description["items"][0]["offset"], *(item["offset"] for item in description["items"][1]["items"])]
    assert offsets == [0, 64, 64 + 448]


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
            unpack(description | {"items": [{"is": "tensor"}]}, fd, device=CPU)
        assert mappings() == before == 0
        assert same(kept["a"], torch.ones(1 << 16))
    finally:
        gc.enable()
        os.close(fd)
