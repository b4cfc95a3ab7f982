"""What a difference looks like: the same words whether an output is looked at in one piece or in many."""

import math

import pytest
import torch

from pkb.problems import compare
from pkb.problems.compare import Context
from pkb.rank.comparison import diagnose as module
from pkb.rank.comparison.diagnose import diagnose
from pkb.rank.comparison.truth import _name, read_output
from pkb.rank.trees import describe
from pkb.types.difference import Mismatch, Pattern


@pytest.fixture(params=[1 << 22, 32], ids=["whole", "pieces"], autouse=True)
def _pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "PIECE", request.param)
    monkeypatch.setattr(module, "SAMPLE", 2 * request.param)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


WANT = normal(40, 10)
ARGUMENT = normal(20, 20, seed=1)


def look(
    have: torch.Tensor, want: torch.Tensor = WANT, others: dict[int, torch.Tensor] | None = None
) -> dict[str, object]:
    context = Context(arguments={"x": ARGUMENT, "dst": 1}, rank=0, world_size=4, dtype=torch.float32)
    return diagnose(want, have, context=context, others=others or {})


def seen(
    have: torch.Tensor, want: torch.Tensor = WANT, others: dict[int, torch.Tensor] | None = None
) -> tuple[Pattern, str]:
    """The pattern, and the sentence that it becomes in a verdict."""
    found = look(have, want, others)
    pattern, amount = found["pattern"], found["amount"]
    assert isinstance(pattern, Pattern)
    assert amount is None or isinstance(amount, int | float)
    mismatch = Mismatch("", (0,), 0, "", "", patterns=(pattern,), amount=amount, argument=str(found["argument"]))
    return pattern, mismatch.pattern


def test_patterns() -> None:
    assert look(torch.zeros(40, 10))["pattern"] is Pattern.ZEROS
    assert seen(2.0 * WANT.float()) == (Pattern.CONSTANT_FACTOR, "a constant factor: about 2 times the expected values")
    assert seen(WANT + 3.0) == (Pattern.CONSTANT_OFFSET, "off by a constant: about 3")
    assert seen(ARGUMENT.reshape(40, 10).float()) == (Pattern.OWN_INPUT, "this rank's own x came back")
    assert look(normal(40, 10, seed=2))["pattern"] is None


def test_an_argument_that_is_merely_near_has_not_come_back() -> None:
    """New parameters are near to the old ones, right or wrong; a wrong mean of losses is near to a loss."""
    old = ARGUMENT.reshape(40, 10).float()
    step = 0.01 * normal(40, 10, seed=5)
    assert look(old + 2.0 * step, want=old + step)["pattern"] is not Pattern.OWN_INPUT
    assert look(old + 0.01 * step, want=old + step)["pattern"] is Pattern.OWN_INPUT

    def of_one_number(have: float, want: float) -> object:  # any two have a factor and a difference in common
        context = Context(arguments={"loss": torch.tensor(2.0)}, rank=0, world_size=4, dtype=torch.float32)
        found = diagnose(torch.tensor(want), torch.tensor(have), context=context, others={})
        return found["pattern"]

    assert of_one_number(2.01, 2.5) is None
    assert of_one_number(5.0, 2.5) is Pattern.CONSTANT_FACTOR
    assert of_one_number(0.625, 2.5) is Pattern.CONSTANT_FACTOR
    assert of_one_number(2.0, 2.5) is Pattern.OWN_INPUT


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
    pattern, sentence = seen(have, others={-2: oldest, -1: older})
    assert pattern is Pattern.STALE
    assert "an earlier call (1 call before)" in sentence
    have[39] = 5.0  # of no call at all
    assert look(have, others={-2: oldest, -1: older})["pattern"] is None


def test_data_of_a_later_call_in_part_and_in_whole() -> None:
    earlier, later, last = (normal(40, 10, seed=seed) for seed in (3, 4, 5))
    others = {-1: earlier, 1: later, 4: last}
    have = WANT.float()
    have[30:] = last[30:]  # a peer's shard: the rest is this call's own
    assert seen(have, others=others) == (
        Pattern.LATER,
        "data of a later call: the differing elements are those of 4 calls later",
    )
    assert seen(later.bfloat16(), others=others) == (
        Pattern.OVERWRITTEN,
        "overwritten: the whole result is that of a later call (1 call later)",
    )
    assert look(earlier.bfloat16(), others=others)["pattern"] is Pattern.STALE


def test_results_that_hardly_change_are_told_apart() -> None:
    """A loss is about the same in every call: within the tolerance of this search all of them are alike."""
    losses = {distance: torch.tensor(2.30 + 0.01 * distance, dtype=torch.float64) for distance in (-2, -1, 1, 2, 3)}
    want = torch.tensor(2.30, dtype=torch.float64)
    found = look(torch.tensor(2.32), want, others=losses)
    assert (found["pattern"], found["amount"]) == (Pattern.OVERWRITTEN, 2)
    rounded = look(torch.tensor(10.06).bfloat16(), want + 7.7, others={1: torch.tensor(10.0601, dtype=torch.float64)})
    assert rounded["pattern"] is Pattern.OVERWRITTEN, "rounding to the dtype is no distance"
    between = look(torch.tensor(2.306), want, others=losses)  # of no call: as near to its own as to another
    assert between["pattern"] is not Pattern.OVERWRITTEN


def test_a_buffer_for_results_of_several_shapes() -> None:
    """Rows of a later call that has fewer of them, at the beginning of what an earlier one returned."""
    later = normal(30, 10, seed=6)
    have = torch.cat([later, WANT[30:]]).bfloat16()
    assert look(have, others={2: later})["pattern"] is Pattern.OVERWRITTEN
    assert look(have, others={-2: later})["pattern"] is None
    short = normal(4, 10, seed=7)
    have = torch.cat([short, WANT[4:]]).bfloat16()
    assert look(have, others={2: short})["pattern"] is None, "a tenth of the elements shows little"


def test_two_axes_exchanged() -> None:
    square = normal(20, 20, seed=8)
    assert seen(square.t().float(), want=square)[0] is Pattern.TRANSPOSED
    assert seen(WANT.t().reshape(40, 10).float())[0] is Pattern.TRANSPOSED
    cube = normal(4, 6, 5, seed=9)
    assert seen(cube.transpose(1, 2).reshape(4, 6, 5).float(), want=cube)[0] is Pattern.TRANSPOSED
    assert look(WANT.flip(0).float())["pattern"] is None


def test_nan_in_the_last_place() -> None:
    have = WANT.float()
    have[39, 9] = math.nan
    found = look(have)
    assert seen(have) == (Pattern.NAN, "NaN in 0.2% of the elements")
    assert found["first_index"] == [39, 9]
    assert found["first_got"] == "nan"


def test_one_element() -> None:
    have = WANT.float()
    have[39, 8] += 1.0
    assert seen(have) == (Pattern.FEW_ELEMENTS, "a few elements only")


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


def test_a_tensor_is_named_by_its_place_in_what_was_returned() -> None:
    one = torch.zeros(1)
    assert _name(1, {"returned": (one, None, one), "mutated": {}}) == "result 2"
    assert _name(2, {"returned": ([one, one], [one], one), "mutated": {}}) == "result 1[0]"
    assert _name(0, {"returned": {"lengths": one, "values": one}, "mutated": {}}) == "result lengths"
    assert _name(1, {"returned": one, "mutated": {"x": one}}) == "argument changed in place (x)"


def test_what_is_unlike_is_named_once_and_by_its_place() -> None:
    one, two = torch.zeros(1), torch.zeros(2)

    def difference(truth: object, output: object) -> tuple[str, str]:
        _, unlike = read_output(describe(output)[0], -1, truth, None, device=torch.device("cpu"))
        assert unlike is not None
        return unlike.where, unlike.words

    shape = "should have shape [1] and has [2]"
    state = {"weights": [one, one]}
    assert difference({"returned": one, "mutated": {}}, {"returned": two, "mutated": {}}) == ("the result", shape)
    assert difference({"returned": (one, [one]), "mutated": {}}, {"returned": (one, [two]), "mutated": {}}) == (
        "result 1[0]",
        shape,
    )
    changed = {"returned": one, "mutated": {"weights": [one, two]}}
    assert difference({"returned": one, "mutated": state}, changed) == ("argument changed in place (weights[1])", shape)
    assert difference({"returned": one, "mutated": {}}, {"returned": None, "mutated": {}})[0] == "the result"
