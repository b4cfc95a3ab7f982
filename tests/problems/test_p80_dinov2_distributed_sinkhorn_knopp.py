"""Problem 80, Sinkhorn-Knopp: rows and columns scaled in turn over the whole matrix."""

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, Worlds, all_arguments, joined, ready_arguments

from pkb.problems import get


def sinkhorn(ranks: list[Arguments]) -> list[Outputs]:
    first = ranks[0]
    q = torch.exp(joined(ranks, "teacher_output", 0) / first["teacher_temp"])
    prototype, sample = torch.ones(q.shape[1]).double(), torch.ones(q.shape[0]).double()
    for _ in range(first["n_iterations"]):
        prototype = 1 / (sample @ q)
        sample = 1 / (q @ prototype)
    q = sample[:, None] * q * prototype
    return [[block] for block in q.split([len(a["teacher_output"]) for a in ranks])]


class TestModel(ModelTests):
    spec = Spec(
        80,
        sinkhorn,
        results=(torch.float32,),
        honest=0.85,
        spoilt=1.2,
        calls=(0, 1),
        widened_sizes=("odd",),
    )


def run_sinkhorn(rank: int, world_size: int, iterations: int) -> torch.Tensor:
    """On a rank: the reference with another number of iterations."""
    arguments = ready_arguments(80, rank, world_size, "tiny", "fp32", 0)
    return get(80).reference(**(arguments | {"n_iterations": iterations}))


def test_no_iteration(world: Worlds) -> None:
    """The constants cancel only if there is an iteration: exp(x / temperature) * samples / sum."""
    ranks = [arguments | {"n_iterations": 0} for arguments in all_arguments(80, 2, "tiny", "fp32", 0)]
    blocks = [own[0] for own in sinkhorn(ranks)]
    scale = sum(map(len, blocks)) / sum(float(block.sum()) for block in blocks)
    for got, block in zip(world(2).call(run_sinkhorn, 0), blocks, strict=True):
        torch.testing.assert_close(got.double(), block * scale, rtol=1e-5, atol=0)
