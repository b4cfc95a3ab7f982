"""Uses of the kit that none of our kernels makes, and that its page allows: right, or refused in words."""

from pathlib import Path

import pytest
from cases import Case
from ranks import Run

HERE = Path(__file__).parent
SHAPES = ({"m": 24, "n": 40}, {"m": 3, "n": 7}, {"m": 33, "n": 16})
UNORDERED = (("STREAMS: list", "import pkb.kit.streams\npkb.kit.streams.current = lambda device: None\nSTREAMS: list"),)
ONE_PLACE = (("turns_of(inner, outer.world)", "turns_of(inner)"),)
DEBUG = (('name="unusual")', 'name="unusual", options=["-DPKB_DEBUG=1"])'),)


def case(use: str, **more: object) -> Case:
    fields: dict[str, object] = {"calls": 12, "constants": {"USE": f'"{use}"'}, "late": 0.6} | more
    return Case(2, 3, SHAPES, ("bf16", "fp32"), file=str(HERE / "unusual_use.py"), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("use", ["streams", "pipes", "runs"])
def test_it_is_right(use: str, run: Run) -> None:
    assert run(case(use)) == ""


def test_two_streams_without_the_kits_order_are_not(run: Run) -> None:
    assert run(case("streams", edits=UNORDERED), wait_s=3.0) != ""


@pytest.mark.slow
def test_two_pipes_in_one_place_are_wrong_and_a_debug_build_says_so(run: Run) -> None:
    assert "values differ" in run(case("pipes", edits=ONE_PLACE), wait_s=3.0)
    assert "died with exit code -6" in run(case("pipes", edits=ONE_PLACE + DEBUG), wait_s=3.0)
    assert run(case("pipes", edits=DEBUG)) == ""
    assert run(case("runs", edits=DEBUG)) == ""
