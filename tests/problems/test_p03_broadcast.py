"""Problem 3, broadcast: the source's tensor everywhere."""

from collective_checks import check_exact, check_root_varies, check_views
from harness import ModelTests, Spec
from on_ranks import Arguments, Array, Worlds, arrays


def broadcast(ranks: list[Arguments]) -> list[Array]:
    return [arrays(ranks, "tensor")[ranks[0]["src"]]] * len(ranks)


class TestModel(ModelTests):
    spec = Spec(
        3,
        broadcast,
        worlds=(1, 2, 3, 4),
        ordered=True,
        calls=(1, 2),
        refused=[("src is 2", lambda _: {"src": 2}), ("src is -1", lambda _: {"src": -1})],
    )


def test_comparison_is_exact_where_nothing_is_computed() -> None:
    check_exact(3, exact=True)


def test_a_view_that_is_not_contiguous_is_taken_by_value(world: Worlds) -> None:
    check_views(world, 3)


def test_the_root_agrees_between_ranks_and_varies_between_calls() -> None:
    check_root_varies(3, "src")
