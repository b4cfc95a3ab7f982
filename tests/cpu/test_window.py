"""The window on a CPU: what is sealed is unreadable and comes back bit for bit, once; and digests are of every byte."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pkb.rank.trees import as_bytes, copied, tensors_in
from pkb.rank.window.host import HostWindow
from pkb.rank.window.seals import Seals

KEY = bytes(range(32))
SEALS = Seals(HostWindow(), 0)


def read(tensor: torch.Tensor) -> bytes:
    return bytes(as_bytes(tensor).tolist())


def arguments() -> dict[str, object]:
    layer = torch.nn.Linear(3, 2)
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.tensor([1.0, 2.0]), (4,), check_invariants=True)
    return {
        "x": torch.randn(5, 7).t(), "flag": torch.tensor([True, False]), "z": torch.randn(3, dtype=torch.complex64),
        "parts": [torch.arange(9), (torch.zeros(0), torch.tensor(2.5).bfloat16())], "layer": layer, "sparse": sparse, "n": 3,
        "large": torch.randn(300_000),
    }  # fmt: skip


def group(axis: str) -> str:
    return axis


def test_every_tensor_is_sealed_and_opened_once() -> None:
    drawn = arguments()
    plain = [read(tensor) for tensor in tensors_in(drawn)]
    tree = copied(drawn, group=group)
    seals = Seals(HostWindow(), rank=1)
    seals.seal(4, tree, KEY)
    assert [read(tensor) for tensor in tensors_in(drawn)] == plain, "a copy was sealed"
    assert all(read(tensor) != was for tensor, was in zip(tensors_in(tree), plain, strict=True) if was)
    assert seals.open(4, KEY)
    assert [read(tensor) for tensor in tensors_in(tree)] == plain
    assert not seals.open(4, KEY), "a second call finds it open"
    assert [read(tensor) for tensor in tensors_in(tree)] == plain
    seals.open_again([4])
    assert seals.open(4, KEY)
    assert [read(tensor) for tensor in tensors_in(tree)] != plain


def test_ranks_calls_tensors_and_keys_have_keystreams_of_their_own() -> None:
    streams = set()
    for rank, slot, key in ((0, 0, KEY), (1, 0, KEY), (0, 1, KEY), (0, 0, KEY[::-1])):
        tensors = [torch.zeros(40, dtype=torch.uint8), torch.zeros((1 << 20) + 40, dtype=torch.uint8)]
        Seals(HostWindow(), rank).seal(slot, tensors, key)
        streams |= {read(tensors[0]), read(tensors[1][:40]), read(tensors[1][-40:])}
    assert len(streams) == 12


def test_without_its_key_a_batch_does_not_run() -> None:
    seals = Seals(HostWindow(), 0)
    seals.hold(0, [torch.zeros(3)])
    with pytest.raises(RuntimeError, match="key has not come"):
        seals.open(0, b"")
    seals.drop()
    assert not seals.open(0, b""), "what nobody has sealed needs no key"


@given(st.binary(min_size=1, max_size=200), st.data())
@settings(max_examples=100, deadline=None)
def test_any_change_of_one_byte_changes_the_digest(data: bytes, draw: st.DataObject) -> None:
    where = draw.draw(st.integers(0, len(data) - 1))
    change = draw.draw(st.integers(1, 255))
    before = torch.tensor(list(data), dtype=torch.uint8)
    after = before.clone()
    after[where] ^= change
    assert SEALS.digest(before, KEY) == SEALS.digest(before.clone(), KEY)
    assert SEALS.digest(before, KEY) != SEALS.digest(after, KEY)
    assert SEALS.digest(before, KEY) != SEALS.digest(before)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=30), st.data())
@settings(max_examples=100, deadline=None)
def test_exchanged_words_change_the_digest(words: list[int], draw: st.DataObject) -> None:
    i, j = (draw.draw(st.integers(0, len(words) - 1)) for _ in range(2))
    swapped = copy.copy(words)
    swapped[i], swapped[j] = words[j], words[i]
    assert (SEALS.digest(torch.tensor(words)) == SEALS.digest(torch.tensor(swapped))) == (words == swapped)


def test_the_digest_is_of_values_in_order_not_of_memory() -> None:
    base = torch.randn(6, 8)
    assert SEALS.digest(base.t()) == SEALS.digest(base.t().contiguous())
    assert SEALS.digest(base.t()) != SEALS.digest(base)
    assert SEALS.digest([base, base.t()]) == SEALS.digest(base) + SEALS.digest(base.t())
    assert SEALS.digest({"a": 1, "b": "text"}) == ()
    assert SEALS.commit([base, [base, base]], KEY)() == [SEALS.digest(base, KEY), SEALS.digest(base, KEY) * 2]


def test_signs_of_zero_count() -> None:
    assert SEALS.digest(torch.tensor([0.0])) != SEALS.digest(torch.tensor([-0.0]))
