"""Problem 6, gather: all parts on the root, everything else as it was."""

import numpy as np
from collective_checks import check_exact, check_root_varies, check_views
from harness import ModelTests, Spec
from on_ranks import Arguments, Array, Worlds, all_arguments, arrays, run_reference


def gather(ranks: list[Arguments]) -> list[Array]:
    own = arrays(ranks, "tensor")
    return [np.stack(own) if r == ranks[r]["dst"] else own[r] for r in range(len(ranks))]


class TestModel(ModelTests):
    spec = Spec(
        6,
        gather,
        returns_arguments=True,
        worlds=(1, 2, 3, 4),
        ordered=True,
        calls=(1, 2),
        refused=[("dst is -1", lambda _: {"dst": -1})],
    )


def test_comparison_is_exact_where_nothing_is_computed() -> None:
    check_exact(6, exact=True)


def test_a_view_that_is_not_contiguous_is_taken_by_value(world: Worlds) -> None:
    check_views(world, 6)


def test_the_root_agrees_between_ranks_and_varies_between_calls() -> None:
    check_root_varies(6, "dst")


def test_only_the_root_returns_a_new_tensor(world: Worlds) -> None:
    for number, by_rank in ((2, world(2).call(run_reference, 6, "tiny", "fp32", (0, 1, 2))),):
        for call, ranks in enumerate(all_arguments(6, number, "tiny", "fp32", call) for call in range(3)):
            assert [own[call]["shares"] for own in by_rank] == [r != a["dst"] for r, a in enumerate(ranks)]
