"""Digests of trees: any change of a value changes them, and where it lies in memory does not."""

import copy

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pkb.rank.trees import digest


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
    assert digest({"a": 1, "b": "text"}) == ()


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
