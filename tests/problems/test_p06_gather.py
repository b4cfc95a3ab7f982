"""Problem 6, gather: all parts on the root, everything else as it was."""

import numpy as np
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


def test_only_the_root_returns_a_new_tensor(world: Worlds) -> None:
    by_rank = world(2).call(run_reference, 6, "tiny", "fp32", (0, 1, 2))
    for call in range(3):
        ranks = all_arguments(6, 2, "tiny", "fp32", call)
        assert [own[call]["shares"] for own in by_rank] == [r != a["dst"] for r, a in enumerate(ranks)]
