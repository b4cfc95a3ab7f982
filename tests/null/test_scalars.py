"""Scalar arguments vary from call to call or from size to size: a kernel that hard-codes one must fail somewhere."""

from collections import defaultdict

import torch

from pkb.problems import default_registry
from pkb.problems.base import DTYPES, Problem
from pkb.problems.draw import Draw

FIXED = {
    (21, "norm_type"): "2 is what training loops pass; docs/differences.md",
    (22, "norm_type"): "as 21",
    (22, "ep_size"): "the layout's: pairs of ranks",
    (48, "n_fsdp"): "the layout's: pairs of ranks",
    (49, "top_k"): "of the model, Mixtral's",
    (50, "top_k"): "of the model, Mixtral's",
    (51, "top_k"): "of the model, Mixtral's",
    (51, "num_experts"): "what makes the problem: as many as two ranks have",
    (51, "group"): "the whole world, as upstream's",
    (61, "camera_model"): "the reference refuses all others",
    (72, "num_groups"): "the shape of h says it too",
    (78, "tile_latent_min_length"): "the tiling belongs to the model",
}
"""What is the same in all these draws, and why that is no way to pass."""
SCALARS = (bool, int, float, str, type(None))


def values_seen(problem: Problem) -> dict[str, set[str]]:
    """By argument; a tensor, a module or a group counts as one that varies."""
    seen: dict[str, set[str]] = defaultdict(set)
    kinds = list(problem.kinds) or [""]
    for size, calls in (("tiny", 20), ("odd", 4)):
        for ranks in (2, 4):
            for call in range(calls // ranks) if problem.why_not(size, ranks, problem.default_dtype) is None else ():
                draw = Draw(
                    secret=b"scalars", call=call, rank=0, world_size=ranks, size=problem.sizes[size],
                    dtype=DTYPES[problem.default_dtype], device=torch.device("cpu"), layout=problem.layout,
                    kind=kinds[call % len(kinds)],
                )  # fmt: skip
                for name, value in problem.inputs(draw).items():
                    items = value if isinstance(value, tuple | list) else [value]
                    plain = all(isinstance(item, SCALARS) for item in items)
                    seen[name] |= {repr(value)} if plain else {"some object", "another"}
    return seen


def test_scalars_that_never_change_are_known_by_name() -> None:
    fixed = {
        (problem.id, name)
        for problem in default_registry().all()
        for name, values in values_seen(problem).items()
        if len(values) == 1
    }
    assert fixed == set(FIXED)
