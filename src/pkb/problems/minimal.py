"""The shortest form of a user's own problem: a file with `solution` and `inputs`, everything else by default.

Optional in the module: `SIZES` (sizes that are missing take those of `tiny`), `cost`, `COMPARE` (a rule), `WORLD_SIZES`,
`NATIVE` (the truth is the reference itself), `SOURCE`, `baseline` (what candidates are timed against), `exact`,
`stock_symmetric`.
"""

from types import ModuleType

from pkb.problems.base import OPTIONAL_SIZES, SIZE_NAMES, Problem, Size
from pkb.problems.compare import NormGate
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy


def is_minimal(module: ModuleType) -> bool:
    return callable(getattr(module, "solution", None)) and callable(getattr(module, "inputs", None))


def problem_from(module: ModuleType, *, number: int, name: str) -> Problem:
    """A `Problem` from what the module has. Without `cost` nothing is known about its limits."""
    given: dict[str, Size] = dict(getattr(module, "SIZES", {}))
    smallest = given.get("tiny", {})
    return Problem(
        id=number,
        name=name,
        source=str(getattr(module, "SOURCE", "a problem of your own")),
        taxonomy=Taxonomy(("other",), "other", ("inference",), ("other",)),
        sizes={size: given.get(size, smallest) for size in SIZE_NAMES}
        | {size: given[size] for size in OPTIONAL_SIZES if size in given},
        inputs=module.inputs,
        reference=module.solution,
        baseline=getattr(module, "baseline", None),
        exact=getattr(module, "exact", None),
        stock_symmetric=getattr(module, "stock_symmetric", None),
        cost=getattr(module, "cost", _unknown),
        compare=getattr(module, "COMPARE", NormGate()),
        world_sizes=tuple(getattr(module, "WORLD_SIZES", (1, 2, 3, 4, 8))),
        truth="native" if getattr(module, "NATIVE", False) else "float64",
    )


def _unknown(size: Size, world_size: int, element_bytes: int) -> Cost:
    return Cost(
        flops=0,
        hbm_bytes=0,
        link_sent_bytes=0,
        link_received_bytes=0,
        phases=0,
        note="no cost is declared: no floor is known",
    )
