"""How sums are compared: what honest rounding does at production sizes passes, what lost data does fails."""

import pytest
import torch

from pkb.problems.compare import Context, NormGate
from pkb.problems.plain_sums import OCTAVES, SumGate

COLUMNS, ROWS, RANKS = 2048, 1024, 8
CONTEXT = Context({}, rank=0, world_size=RANKS, dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def summands() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    octave = torch.randint(0, OCTAVES, (COLUMNS,), generator=generator)
    scales = torch.tensor([2.0**-n for n in range(OCTAVES)])[octave]
    return [(torch.randn(ROWS, COLUMNS, generator=generator) * scales).bfloat16() for _ in range(RANKS)]


@pytest.fixture(scope="module")
def truth(summands: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([summand.double() for summand in summands]).sum(dim=0)


def ring_sum(summands: list[torch.Tensor]) -> torch.Tensor:
    """Rounded to bf16 at every hop, as a library's ring does."""
    total = summands[0]
    for summand in summands[1:]:
        total = total + summand
    return total


def ratio(truth: torch.Tensor, output: torch.Tensor) -> float:
    return SumGate()(truth, output, CONTEXT)


def test_a_ring_in_bf16_keeps_half_of_the_tolerance(summands: list[torch.Tensor], truth: torch.Tensor) -> None:
    total = ring_sum(summands)
    assert ratio(truth, total) < 0.5
    assert NormGate()(truth, total, CONTEXT) > 1.2 * ratio(truth, total), "by the rms of the output alone"


@pytest.mark.parametrize("row", [0, ROWS - 1])
def test_one_element_that_lacks_a_summand_fails(summands: list[torch.Tensor], truth: torch.Tensor, row: int) -> None:
    total = ring_sum(summands)
    column = int(truth.square().sum(dim=0).argmax())
    total[row, column] -= 2.0
    assert ratio(truth, total) > 1


@pytest.mark.parametrize("size", range(OCTAVES))
def test_one_element_without_its_peers_fails_in_columns_of_every_size(
    summands: list[torch.Tensor], truth: torch.Tensor, size: int
) -> None:
    """A tile that ends an element early is the commonest mistake of all."""
    total, sizes = ring_sum(summands), truth.square().mean(dim=0).sqrt() / RANKS**0.5
    column = int((sizes - 2.0**-size).abs().argmin())
    row = int((truth[:, column] - summands[0][:, column]).abs().argmax())
    total[row, column] = summands[0][row, column]
    assert ratio(truth, total) > 1


def test_columns_of_four_elements_are_not_held_to_what_they_came_to_by_chance() -> None:
    """A reduce-scatter of 32 tokens over 8 ranks: in some columns all four sums nearly cancel, and rounding does not."""
    generator = torch.Generator().manual_seed(2)
    scales = torch.tensor([2.0**-n for n in range(OCTAVES)])
    for _ in range(8):
        octave = torch.randint(0, OCTAVES, (8192,), generator=generator)
        parts = [(torch.randn(4, 8192, generator=generator) * scales[octave]).bfloat16() for _ in range(RANKS)]
        assert ratio(torch.stack([part.double() for part in parts]).sum(dim=0), ring_sum(parts)) < 0.5


def test_small_columns_that_are_lost_fail(summands: list[torch.Tensor], truth: torch.Tensor) -> None:
    total = ring_sum(summands)
    total[:, truth.square().sum(dim=0).argmin()] = 0
    assert ratio(truth, total) > 1


def test_the_truth_is_left_as_it_was(summands: list[torch.Tensor], truth: torch.Tensor) -> None:
    before = truth.clone()
    ratio(truth, ring_sum(summands))
    assert torch.equal(before, truth)
