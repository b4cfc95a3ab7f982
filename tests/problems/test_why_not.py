"""Cases that a problem cannot be run in say why, and those beside them can be run."""

import pytest

from pkb.problems import get


@pytest.mark.parametrize(
    ("number", "size", "ranks", "dtype", "words"),
    [
        (23, "tiny", 2, "fp16", "fp16"),
        *((number, "paper", 3, "bf16", "8 experts") for number in (26, 28, 29, 31, 32)),
        (47, "paper", 3, "bf16", "equal parts"),
        (51, "tiny", 2, "bf16", "2 ranks"),
        (54, "tiny", 33, "bf16", "33 ranks"),
        (55, "tiny", 3, "bf16", "3 ranks"),
        (56, "tiny", 3, "bf16", "3 ranks"),
        (58, "tiny", 2, "fp16", "fp16"),
        (61, "tiny", 2, "bf16", "does not run in bf16"),
        (72, "paper", 3, "bf16", "1024 filter groups"),
    ],
)
def test_what_cannot_run_says_why(number: int, size: str, ranks: int, dtype: str, words: str) -> None:
    assert words in (get(number).why_not(size, ranks, dtype) or "")


@pytest.mark.parametrize(
    ("number", "size", "ranks"),
    [*((number, "odd", 3) for number in (26, 28, 29, 31, 32)), (54, "real", 2), (56, "real", 2)],
)
def test_what_can_run_is_not_refused(number: int, size: str, ranks: int) -> None:
    assert get(number).why_not(size, ranks, "bf16") is None


def test_ring_attention_needs_a_token_for_each_rank() -> None:
    assert "too few for 4 ranks" in (get(54).requires({"tokens": 3}, 4) or "")
