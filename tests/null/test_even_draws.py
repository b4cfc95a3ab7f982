"""Inputs as the published benchmark draws them: every rank holds as much as any other, and nobody is idle."""

from typing import Any

import pytest
import torch

from pkb.problems.base import DTYPES, Problem, tensors_in
from pkb.problems.draw import Draw, PlainChoices
from pkb.problems.registry import default_registry

PROBLEMS = default_registry().all()
RANKS = 4
UNLIKE_BY_ITS_NATURE = {
    5: "the root holds all pieces, in the published benchmark too",
    62: "a stencil has more points near the poles",
    70: "lengths of bags are drawn, in the published benchmark too",
}


def arguments(problem: Problem, size: str, *, rank: int, even: bool, call: int = 0) -> dict[str, Any]:
    draw = Draw(
        secret=b"s", call=call, rank=rank, world_size=RANKS, size=problem.sizes[size], dtype=DTYPES[problem.dtypes[0]],
        device=torch.device("cpu"), layout=problem.layout, even=even,
    )  # fmt: skip
    return problem.inputs(draw)


def shapes(values: Any) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in tensors_in(values)]


def size_of(problem: Problem) -> str | None:
    names = ("paper",) if problem.id == 85 else ("tiny", "paper")  # nothing divides the 211 keys of its tiny size
    return next((s for s in names if problem.why_not(s, RANKS, problem.dtypes[0]) is None), None)


@pytest.mark.parametrize("problem", PROBLEMS, ids=[p.stem for p in PROBLEMS])
def test_all_ranks_hold_equally_much(problem: Problem) -> None:
    size = size_of(problem)
    assert size is not None
    drawn = [arguments(problem, size, rank=rank, even=True) for rank in range(RANKS)]
    if problem.id in UNLIKE_BY_ITS_NATURE or uneven_by_size(problem, size):
        return
    for rank in range(1, RANKS):
        assert shapes(drawn[rank]) == shapes(drawn[0])
    again = arguments(problem, size, rank=0, even=True, call=7)
    assert shapes(again) == shapes(drawn[0]), "no call has other shapes than another"


def uneven_by_size(problem: Problem, size: str) -> bool:
    """Extents of a size that no rank count divides (a vocabulary of 101) are nobody's draw."""
    return problem.id in (21, 22) and "layers" in problem.sizes[size]


@pytest.mark.parametrize("number", [10, 27, 29, 35, 65, 66, 67, 79, 80, 85])
def test_otherwise_they_do_not(number: int) -> None:
    """Or the test above would show nothing."""
    problem = default_registry().get(number)
    seen = {
        tuple(map(tuple, shapes(arguments(problem, "tiny", rank=rank, even=False, call=call))))
        for rank in range(RANKS)
        for call in range(4)
    }
    assert len(seen) > 1


@pytest.mark.parametrize("number", [3, 4, 5, 6])
def test_the_root_is_rank_0(number: int) -> None:
    problem = default_registry().get(number)
    for call in range(5):
        drawn = arguments(problem, "tiny", rank=1, even=True, call=call)
        assert drawn.get("src", drawn.get("dst")) == 0


def test_splits_are_equal_and_values_are_not() -> None:
    drawn = [arguments(default_registry().get(27), "tiny", rank=rank, even=True) for rank in range(RANKS)]
    assert all(len(set(each["input_split_sizes"] + each["output_split_sizes"])) == 1 for each in drawn)
    assert not torch.equal(drawn[0]["local_tensor"], drawn[1]["local_tensor"])


@pytest.mark.parametrize("number", [28, 31, 49, 50])
def test_every_expert_has_as_many_tokens(number: int) -> None:
    problem = default_registry().get(number)
    drawn = arguments(problem, "paper", rank=2, even=True)
    experts = drawn["num_experts"]
    if number == 28:
        counts = drawn["expert_mask"].sum(dim=(1, 2))
    else:
        logits = drawn["hidden_states"].float() @ drawn["gate_weight"].float().t() + drawn["gate_bias"].float()
        counts = torch.bincount(logits.topk(drawn["top_k"], dim=1).indices.flatten(), minlength=experts)
    assert len(set(counts.tolist())) == 1


@pytest.mark.parametrize(
    ("number", "name", "value"),
    [(36, "unpadded_dim_size", 0), (38, "seq_dim", 1), (38, "restore_shape", True), (39, "causal", False),
     (54, "causal", True), (57, "causal", False), (70, "weights", None), (81, "reverse", False), (86, "partition_dim", 1)],
)  # fmt: skip
def test_options_are_the_published_ones(number: int, name: str, value: object) -> None:
    for call in range(3):
        assert arguments(default_registry().get(number), "tiny", rank=0, even=True, call=call)[name] == value


def test_sorted_lookups_make_both_orders_one() -> None:
    indices = arguments(default_registry().get(10), "tiny", rank=1, even=True)["indices"]
    assert torch.equal(indices, indices.sort().values)


def test_plain_choices() -> None:
    source = PlainChoices(7)
    assert source.randint(-7, 6) == 0
    assert (source.uniform(1.0, 3.0), source.gauss(0.5, 2.0)) == (2.0, 0.5)
    assert (source.randrange(8), source.randrange(3, 8)) == (0, 3)
    assert source.choices(["a", "b"], [0.1, 0.9]) == ["a"]
    assert source.sample(range(9), 2) == [0, 1]
    assert source.getrandbits(62) != PlainChoices(8).getrandbits(62), "bits seed values"
