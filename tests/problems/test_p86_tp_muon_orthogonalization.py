"""Problem 86, tensor-parallel Muon: Newton-Schulz steps on singular values."""

import pytest
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, Worlds, all_arguments, joined, ready_arguments

from pkb.problems import get

TABLES = {  # as published with each variant
    "quintic": "4.0848 -6.8946 2.9270 3.9505 -6.3029 2.6377 3.7418 -5.5913 2.3037 2.8769 -3.1427 1.2046 2.8366 -3.0525 1.2012",
    "aol": "4.0098 -7.0585 2.4635 3.4585 -5.5479 2.5959 2.7573 -3.2939 1.4254 2.7215 -3.0494 1.3169",
}  # fmt: skip


def muon(ranks: list[Arguments]) -> list[Outputs]:
    """X = U diag(s) V^T, and every step maps s to a s + b s^3 + c s^5."""
    first = ranks[0]
    dim = first["partition_dim"]
    left, s, right = torch.linalg.svd(joined(ranks, "x", dim), full_matrices=False)
    s = s / s.norm()
    numbers = [float(word) for word in TABLES[first["coefficient_type"]].split()]
    for step in range(first["steps"]):
        a, b, c = numbers[3 * step % len(numbers) :][:3]
        s = a * s + b * s**3 + c * s**5
    widths = [arguments["x"].shape[dim] for arguments in ranks]
    return [[block] for block in (left * s @ right).split(widths, dim=dim)]


class TestModel(ModelTests):
    spec = Spec(
        86,
        muon,
        honest=0.85,
        spoilt=1.1,
        calls=(0, 1),
        widened_sizes=("odd",),
    )


def run_muon(rank: int, world_size: int, kind: str, steps: int) -> torch.Tensor:
    """On a rank: the reference with other coefficients."""
    arguments = ready_arguments(86, rank, world_size, "tiny", "fp64", 0)
    return get(86).reference(**(arguments | {"coefficient_type": kind, "steps": steps}))


@pytest.mark.parametrize(("kind", "steps"), [("polar_express", 8), ("quintic", 10), ("aol", 4), ("simple", 3)])
def test_singular_values_are_pulled_to_one(world: Worlds, kind: str, steps: int) -> None:
    dim = all_arguments(86, 2, "tiny", "fp64", 0)[0]["partition_dim"]
    values = torch.linalg.svdvals(torch.cat(world(2).call(run_muon, kind, steps), dim=dim))
    assert float(values.max()) < 1.3
    assert float(values.median()) > (0.9 if kind == "polar_express" else 0.5)
