"""Arguments in which a common mistake shows: each of these was drawn before so that it never did."""

from typing import Any

import pytest
import torch

from pkb.problems.base import DTYPES
from pkb.problems.draw import Draw
from pkb.problems.registry import default_registry


def drawn(number: int, call: int, *, size: str = "tiny", ranks: int = 4, kind: str = "") -> list[dict[str, Any]]:
    """What every rank is given."""
    problem = default_registry().get(number)
    return [
        problem.inputs(
            Draw(
                secret=b"telling", call=call, rank=rank, world_size=ranks, size=problem.sizes[size], kind=kind,
                device=torch.device("cpu"), dtype=DTYPES[problem.default_dtype], layout=problem.layout,
            )
        )
        for rank in range(ranks)
    ]  # fmt: skip


def test_the_length_of_a_field_is_not_always_twice_its_spectrum() -> None:
    """Else an inverse transform that does not look at `s` is right with every number of ranks that is tried."""
    arguments = drawn(60, 0, ranks=3)[0]
    assert arguments["s"] is not None
    assert arguments["s"][1] != 2 * (arguments["x"].shape[-1] - 1)


def test_strides_paddings_and_dilations_differ_on_each_axis() -> None:
    """Else a convolution that takes them in another order is right, or one that strides frames alone."""
    arguments = drawn(76, 0, size="odd")[0]
    for name in ("stride", "padding", "dilation"):
        assert len(set(arguments[name])) == 3, name
    assert 1 not in arguments["stride"]


def test_filters_on_the_sphere_move_by_other_steps_in_other_sizes() -> None:
    """Else a step of two longitudes, whatever the grids are, is right wherever it is tried."""
    steps = {a["nlon_in"] // a["nlon_out"] for a in (drawn(62, 0, size=size)[0] for size in ("tiny", "odd"))}
    assert len(steps) == 2


@pytest.mark.parametrize("number", [82, 83, 84])
@pytest.mark.parametrize("size", ["tiny", "odd"])
def test_top_p_drops_something_in_every_call(number: int, size: str) -> None:
    """Else who ignores it is right."""
    for call in range(4):
        ranks = drawn(number, call, size=size, kind="top_p")
        logits = torch.cat([a["vocab_parallel_logits"] for a in ranks], dim=-1).double().flatten(0, 1)
        largest = logits.topk(ranks[0]["top_k"], dim=1).values[:, -1:]
        rising = logits.masked_fill(logits < largest, float("-inf")).sort(dim=1).values
        dropped = (rising.softmax(1).cumsum(1) <= 1 - ranks[0]["top_p"]) & rising.isfinite()
        assert float(dropped.any(dim=1).double().mean()) > 0.1
