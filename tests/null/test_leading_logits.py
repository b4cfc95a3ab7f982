"""The largest of a row, looked for in its best blocks, are those that torch's top-k finds."""

import pytest
import torch

from pkb.problems.leading_logits import largest_by_blocks


@pytest.mark.parametrize(
    ("columns", "count", "block"), [(640, 7, 16), (643, 7, 16), (129, 31, 4), (40, 12, 16), (9, 20, 4)]
)
@pytest.mark.parametrize("values", ["distinct", "ties"])
def test_they_are_the_largest(columns: int, count: int, block: int, values: str) -> None:
    generator = torch.Generator().manual_seed(columns)
    rows = torch.rand(50, columns, generator=generator)
    if values == "ties":
        rows = (8 * rows).floor()
    rows[:, -1] = 9.0  # in the last block, which may be a short one
    found = largest_by_blocks(rows, count, block)
    assert torch.equal(found.values, rows.topk(min(count, columns), dim=1).values)
    assert torch.equal(rows.gather(1, found.columns), found.values)
    assert all(len(set(row)) == len(row) for row in found.columns.tolist()), "a column twice"
