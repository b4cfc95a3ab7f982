"""Baselines and symmetric-memory forms by their CUDA paths: fused attention, Triton, TF32, foreach operators."""

import pytest

from pkb.judge.oracle_only.references import ReferenceRow, run_references
from pkb.judge.oracle_only.world import running
from pkb.problems import default_registry
from pkb.types.stock import StockFunction

pytestmark = pytest.mark.gpu


def measured(size: str, world_size: int, function: StockFunction) -> list[ReferenceRow]:
    with running("virtual", world_size) as platform:
        rows = run_references(
            list(default_registry().all()),
            platform=platform,
            size=size,
            world_size=world_size,
            calls=2,
            function=function,
        )
    for row in rows:
        print(f"{row.id} {row.name}: {row.time_us} us, error ratio {row.compared} {row.error}{row.compare_error}")
    return rows


@pytest.mark.parametrize(("size", "world_size"), [("tiny", 2), ("odd", 4)])
def test_every_baseline_passes_on_a_gpu(size: str, world_size: int) -> None:
    rows = measured(size, world_size, "baseline")
    assert len(rows) > 20
    assert [(row.id, row.error, row.compare_error) for row in rows if row.error or row.compare_error] == []
    assert all(row.compared is not None and row.compared <= 1 for row in rows)


def test_no_symmetric_form_is_wrong() -> None:
    """One that this machine or this torch does not have says so; none may give another result."""
    rows = measured("paper", 2, "stock_symmetric")
    assert {row.id for row in rows} == {1, 2, 7, 12, 13, 16}
    assert not [row.error for row in rows if row.error.startswith("wrong")]
