"""Results that are right within the tolerance and differ between ranks, where a problem promises the same bits."""

from pkb.judge.hints import hints_for
from pkb.judge.stages.correctness import bits_mismatch
from pkb.types.difference import DifferenceKind
from pkb.types.verdict import Evidence, Verdict


def test_the_same_bits_are_no_mismatch() -> None:
    assert bits_mismatch({(7, rank): ("a", "b") for rank in range(4)}, words="") is None
    assert bits_mismatch({(7, 0): ("a",)}, words="") is None


def test_who_differs_in_what() -> None:
    found = bits_mismatch(
        {(7, 0): ("a", "b"), (7, 1): ("a", "b"), (7, 2): ("a", "c"), (7, 3): ("a", "d")}, words="tiny"
    )
    assert found is not None
    assert (found.ranks, found.rank, found.output) == ((2, 3), 2, "output 1")
    assert found.difference is DifferenceKind.BITS
    assert "not the same bits as on rank 0" in found.what
    hints = hints_for(Verdict.WRONG, Evidence(mismatch=found), platform="cpu", backend="torch")
    assert hints == ["add up in the same order on every rank, or let one rank add and the others copy its sum"]
