"""Problem 3, broadcast: the source's tensor everywhere."""

from harness import ModelTests, Spec
from on_ranks import Arguments, Array, arrays


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
