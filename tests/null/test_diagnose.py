"""What a difference looks like: the same words whether an output is looked at in one piece or in many."""

import math

import pytest
import torch

from pkb.problems import compare
from pkb.problems.compare import Context
from pkb.rank.comparison import diagnose as module
from pkb.rank.comparison.diagnose import diagnose


@pytest.fixture(params=[1 << 22, 32], ids=["whole", "pieces"], autouse=True)
def _pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "PIECE", request.param)
    monkeypatch.setattr(module, "SAMPLE", 2 * request.param)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


WANT = normal(40, 10)
ARGUMENT = normal(20, 20, seed=1)


def look(have: torch.Tensor, want: torch.Tensor = WANT, **others: torch.Tensor) -> dict[str, object]:
    context = Context(arguments={"x": ARGUMENT, "dst": 1}, rank=0, world_size=4, dtype=torch.float32)
    return diagnose(want, have, context=context, others={int(name[1:]): other for name, other in others.items()})


def test_patterns() -> None:
    assert look(torch.zeros(40, 10))["pattern"] == "all zeros"
    assert look(2.0 * WANT.float())["pattern"] == "a constant factor: about 2 times the expected values"
    assert look(WANT + 3.0)["pattern"] == "off by a constant: about 3"
    assert look(ARGUMENT.reshape(40, 10).float())["pattern"] == "this rank's own x came back"
    assert look(normal(40, 10, seed=2))["pattern"] == ""


def test_where_it_begins_and_which_part_is_wrong() -> None:
    have = WANT.float()
    have[20:30] = 7.0
    found = look(have)
    assert found["first_index"] == [20, 0]
    assert (found["first_got"], found["first_expected"]) == (7.0, float(WANT[20, 0]))
    assert found["differing_fraction"] == pytest.approx(0.25)
    assert found["regions"] == [["rows 0-9", 0.0], ["rows 10-19", 0.0], ["rows 20-29", 1.0], ["rows 30-39", 0.0]]


def test_stale_data_of_another_call() -> None:
    older, oldest = normal(40, 10, seed=3), normal(40, 10, seed=4)
    have = WANT.float()
    have[30:] = older[30:]
    assert "another call (number 8)" in str(look(have, _7=oldest, _8=older)["pattern"])
    have[39] = 5.0  # of no call at all
    assert look(have, _7=oldest, _8=older)["pattern"] == ""


def test_nan_in_the_last_place() -> None:
    have = WANT.float()
    have[39, 9] = math.nan
    found = look(have)
    assert found["pattern"] == "NaN in 0.2% of the elements"
    assert found["first_index"] == [39, 9]
    assert found["first_got"] == "nan"


def test_one_element() -> None:
    have = WANT.float()
    have[39, 8] += 1.0
    assert look(have)["pattern"] == "a few elements only"


def test_small_errors_show_the_largest() -> None:
    have = WANT.clone()
    have[13, 3] += 1e-3
    have[14, 4] -= 2e-3
    have[15, 5] = math.inf
    want = WANT.clone()
    want[15, 5] = math.inf
    assert look(have, want)["first_index"] == [14, 4]


def test_not_contiguous_and_complex() -> None:
    have = WANT.clone()
    have[37, 2] = 50.0
    assert look(have.t().contiguous().t(), WANT.t().contiguous().t())["first_index"] == [37, 2]
    wrong = torch.complex(WANT, WANT)
    wrong[20, 1] = torch.tensor(50.0j)
    assert look(wrong, torch.complex(WANT, WANT))["first_index"] == [20, 1, 0]
