"""Scalar arguments vary from call to call or from size to size: a kernel that hard-codes one must fail somewhere."""

from collections import defaultdict

import torch

from pkb.problems import default_registry
from pkb.problems.base import DTYPES, Problem
from pkb.problems.draw import Draw

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


def test_a_module_says_why_a_scalar_never_changes() -> None:
    for problem in default_registry().all():
        never = {name for name, values in values_seen(problem).items() if len(values) == 1}
        assert never == set(problem.fixed), problem.stem
        assert all(problem.fixed.values())
