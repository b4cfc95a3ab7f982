"""Compares what a candidate returned with the truth, on the oracle's ranks: structure, dtype, shape, then every element."""

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from pkb.problems.base import Problem
from pkb.problems.compare import Context, Rule, Upstream
from pkb.rank.comparison.diagnose import diagnose
from pkb.rank.trees import BadTree, Description, describe, unpack
from pkb.types.difference import Difference


def outcome(function: Callable[..., Any], problem: Problem, values: dict[str, Any]) -> dict[str, Any]:
    """What a solution is compared by: its result, and the arguments that it changes in place."""
    return {"returned": function(*values.values()), "mutated": {name: values[name] for name in problem.mutates}}


def widen(tree: Any) -> Any:
    """Floating tensors as float64, everything else as it is."""
    if isinstance(tree, torch.Tensor):
        return tree.double() if tree.is_floating_point() else tree
    if isinstance(tree, torch.nn.Module):
        return copy.deepcopy(tree).double()
    if isinstance(tree, dict):
        return {key: widen(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(widen(item) for item in tree)
    return tree


def rules_for(problem: Problem, truth: Any, *, upstream: bool) -> list[Rule]:
    """One rule for each tensor of {"returned": ..., "mutated": {...}}, in order."""
    returned = len(describe(truth["returned"])[1])
    chosen = problem.compare if isinstance(problem.compare, tuple) else (problem.compare,) * returned
    if len(chosen) != returned:
        raise ValueError(f"problem {problem.stem} has {len(chosen)} rules for {returned} outputs")
    rules = list(chosen)
    for name, value in truth["mutated"].items():
        rules += [problem.mutates[name]] * len(describe(value)[1])
    return [Upstream()] * len(rules) if upstream else rules


class Unlike(NamedTuple):
    """What is not as expected before any value is looked at."""

    difference: Difference
    words: str


def structure_difference(expected: Description, got: Any, *, where: str) -> Unlike | None:
    """The first way in which the structure of an output is not the expected one, or None."""
    if not isinstance(got, dict) or got.get("is") not in ("tensor", "value", "list", "tuple", "dict", "group"):
        return Unlike(Difference.STRUCTURE, f"{where} is not a tensor or a list of tensors")
    if expected["is"] != got["is"]:
        return Unlike(Difference.STRUCTURE, f"{where} should be a {expected['is']} and is a {got['is']}")
    if expected["is"] == "tensor":
        dtype = expected["dtype"]
        if got.get("shape") != expected["shape"]:
            words = f"{where} should have shape {tuple(expected['shape'])} and has {got.get('shape')}"
            return Unlike(Difference.SHAPE, words)
        if got.get("dtype") != dtype:
            return Unlike(Difference.DTYPE, f"{where} should be {dtype} and is {got.get('dtype')}")
        return None
    if expected["is"] == "value":
        if expected["value"] == got.get("value"):
            return None
        words = f"{where} should be {expected['value']!r} and is {got.get('value')!r}"
        return Unlike(Difference.STRUCTURE, words)
    if expected["is"] in ("list", "tuple", "dict"):
        mine, theirs = expected["items"], got.get("items")
        if not isinstance(theirs, list):
            return Unlike(Difference.STRUCTURE, f"{where} is malformed")
        if len(mine) != len(theirs) or expected.get("keys") != got.get("keys"):
            words = f"{where} should have {len(mine)} items and has {len(theirs)}"
            return Unlike(Difference.STRUCTURE, words)
        names = expected.get("keys") or range(len(mine))
        for name, one, other in zip(names, mine, theirs, strict=True):
            inner = f"{where}[{name}]" if where else str(name)
            if difference := structure_difference(one, other, where=inner):
                return difference
    return None


def compare_trees(
    problem: Problem,
    truth: Any,
    native_truth_dtypes: list[torch.dtype],
    output: Any,
    *,
    context: Context,
    upstream: bool,
    others: dict[int, Any],
) -> dict[str, Any]:
    """The worst ratio over all output tensors, with a description of the worst one."""
    expected, got = describe(truth)[1], describe(output)[1]
    worst: dict[str, Any] = {"ok": True, "ratio": 0.0}
    for index, (rule, want, have) in enumerate(
        zip(rules_for(problem, truth, upstream=upstream), expected, got, strict=True)
    ):
        if want.shape != have.shape or have.dtype != native_truth_dtypes[index]:
            return {
                "ok": False,
                "ratio": None,
                "difference": Difference.SHAPE if want.shape != have.shape else Difference.DTYPE,
                "what": f"output {index} has the wrong shape or dtype",
                "output": str(index),
            }
        want = want.to(
            have.device
        )  # some problems return host tensors; what a candidate returned was read to the device
        ratio = rule(want, have, context)
        if ratio <= 1 and (worst["ratio"] is not None and ratio <= worst["ratio"]):
            continue
        if ratio <= 1:
            worst["ratio"] = ratio
            continue
        stale = {slot: describe(other)[1][index].to(have.device) for slot, other in others.items()}
        return {
            "ok": False,
            "ratio": ratio if math.isfinite(ratio) else None,
            "output": _name(index, truth),
            "difference": Difference.VALUES,
            "what": "values differ",
        } | diagnose(want, have, context=context, others=stale)
    return worst


def _name(index: int, truth: Any) -> str:
    returned = len(describe(truth["returned"])[1])
    if index < returned:
        return "the result" if returned == 1 else f"result {index}"
    return f"argument changed in place ({', '.join(truth['mutated'])}), tensor {index - returned}"


def read_output(
    description: Any, fd: int, truth: Any, native_dtypes: list[torch.dtype], *, device: torch.device
) -> tuple[Any, Unlike | None]:
    """The candidate's output, read only if its structure is the expected one; otherwise why not."""
    expected = describe(truth)[0]
    _narrow(expected, list(native_dtypes))
    difference = structure_difference(expected, description, where="")
    if difference:
        words = difference.words.removeprefix("[").replace("returned", "the result", 1)
        return None, Unlike(difference.difference, words)
    try:
        return unpack(description, fd, device=device), None
    except BadTree as error:
        return None, Unlike(Difference.STRUCTURE, f"unreadable: {error}")


def _narrow(node: Description, dtypes: list[torch.dtype]) -> None:
    """Put the dtypes of the native reference into the description of the widened truth."""
    if node["is"] == "tensor":
        node["dtype"] = str(dtypes.pop(0)).removeprefix("torch.")
    for item in node.get("items", []):
        _narrow(item, dtypes)
