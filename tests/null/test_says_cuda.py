"""Which candidates are told that tensors are on a GPU when they ask."""

import pytest

from pkb.rank.emulate.cuda.says_cuda import wanted


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("assert x.device.type == 'cuda'", True),
        ("if compute_device.type != 'cuda': raise", True),
        ("dev.type", True),
        ("x.dtype.type", False),
        ("x.device.index", False),
    ],
)
def test_a_text_asks_for_the_type_of_a_device_under_any_name(text: str, asks: bool) -> None:
    assert wanted(text) is asks
