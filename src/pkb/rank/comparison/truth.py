"""Compares what a candidate returned with the truth, on the oracle's ranks: structure, dtype, shape, then every element."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch

from pkb.problems.base import Problem
from pkb.problems.compare import Context, Rule, Upstream
from pkb.rank.comparison.diagnose import diagnose
from pkb.rank.trees import BadTree, describe, unpack
from pkb.types.difference import DifferenceKind
from pkb.types.protocol.limits import MAX_NAME, clean
from pkb.types.protocol.replies import Comparison, Difference
from pkb.types.protocol.trees import (
    DictNode,
    Dtype,
    GroupNode,
    ListNode,
    Node,
    NonFiniteNode,
    TensorNode,
    TupleNode,
    ValueNode,
)

KINDS = {
    TensorNode: "tensor", ValueNode: "value", NonFiniteNode: "value", ListNode: "list", TupleNode: "tuple", DictNode: "dict",
    GroupNode: "group",
}  # fmt: skip
"""What a result may be, in words."""


def outcome(function: Callable[..., Any], problem: Problem, values: Mapping[str, object]) -> dict[str, object]:
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

    kind: DifferenceKind
    words: str
    """Of what is named by `where`."""
    where: str = ""


def structure_difference(expected: Node, got: Node, *, where: str) -> Unlike | None:
    """The first way in which the structure of an output is not the expected one, or None."""
    kind = KINDS.get(type(got))
    if kind is None:
        return Unlike(DifferenceKind.STRUCTURE, "is not a tensor or a list of tensors", where)
    if KINDS[type(expected)] != kind:
        got_words = "None" if isinstance(got, ValueNode) and got.value is None else f"a {kind}"
        return Unlike(DifferenceKind.STRUCTURE, f"should be a {KINDS[type(expected)]} and is {got_words}", where)
    match expected, got:
        case TensorNode(), TensorNode():
            if got.shape != expected.shape:
                words = f"should have shape {list(expected.shape)} and has {list(got.shape)}"
                return Unlike(DifferenceKind.SHAPE, words, where)
            if got.dtype != expected.dtype:
                return Unlike(DifferenceKind.DTYPE, f"should be {expected.dtype} and is {got.dtype}", where)
        case (ValueNode() | NonFiniteNode(), ValueNode() | NonFiniteNode()):
            if expected.value != got.value:
                words = f"should be {expected.value!r} and is {got.value!r}"
                return Unlike(DifferenceKind.STRUCTURE, words, where)
        case (ListNode() | TupleNode() | DictNode(), ListNode() | TupleNode() | DictNode()):
            return _items_difference(expected, got, where=where)
    return None


Items = ListNode | TupleNode | DictNode


def _items_difference(expected: Items, got: Items, *, where: str) -> Unlike | None:
    mine, theirs = expected.items, got.items
    names: tuple[str, ...] = tuple(map(str, range(len(mine))))
    same_keys = True
    if isinstance(expected, DictNode) and isinstance(got, DictNode):
        names, same_keys = expected.keys, expected.keys == got.keys
    if len(mine) != len(theirs) or not same_keys:
        return Unlike(DifferenceKind.STRUCTURE, f"should have {len(mine)} items and has {len(theirs)}", where)
    for name, one, other in zip(names, mine, theirs, strict=True):
        inner = f"{where}[{name}]" if where else name
        if difference := structure_difference(one, other, where=inner):
            return difference
    return None


def compare_trees(
    problem: Problem,
    truth: Any,
    native_truth_dtypes: list[torch.dtype] | None,
    output: Any,
    *,
    context: Context,
    upstream: bool,
    others: dict[int, Any],
) -> Comparison:
    """The worst ratio over all output tensors, with a description of the worst one. Without dtypes any will do."""
    expected, got = describe(truth)[1], describe(output)[1]
    worst = 0.0
    for index, (rule, want, have) in enumerate(
        zip(rules_for(problem, truth, upstream=upstream), expected, got, strict=True)
    ):
        if want.shape != have.shape or (native_truth_dtypes and have.dtype != native_truth_dtypes[index]):
            kind = DifferenceKind.SHAPE if want.shape != have.shape else DifferenceKind.DTYPE
            return Comparison(None, Difference(str(index), f"output {index} has the wrong {kind}", kind))
        # Some problems return host tensors; what a candidate returned was read to the device.
        want = want.to(have.device)
        ratio = rule(want, have, context)
        if ratio <= 1:
            worst = max(worst, ratio)
            continue
        stale = {slot: describe(other)[1][index].to(have.device) for slot, other in others.items()}
        found = diagnose(want, have, context=context, others=stale)
        difference = Difference(
            output=_name(index, truth),
            what="values differ",
            kind=DifferenceKind.VALUES,
            pattern=found["pattern"],
            amount=found["amount"],
            argument=clean(found["argument"], MAX_NAME),
            first_index=tuple(found["first_index"]),
            first_got=found["first_got"],
            first_expected=found["first_expected"],
            differing_fraction=found["differing_fraction"],
            regions=tuple((name, share) for name, share in found["regions"]),
        )
        return Comparison(ratio if math.isfinite(ratio) else None, difference)
    return Comparison(worst, None)


def _name(index: int, truth: Any) -> str:
    """By its place in what was returned, where other things than tensors count: the fourth tensor need not be item 3."""
    places = list(_places(truth["returned"]))
    if index < len(places):
        return "the result" if len(places) == 1 else _place_name(places[index], changed=False)
    return _place_name([*_places(truth["mutated"])][index - len(places)], changed=True)


def _place_name(place: str, *, changed: bool) -> str:
    if changed:
        return f"argument changed in place ({place})"
    return f"result {place}" if place else "the result"


def _places(tree: Any, place: str = "") -> Iterator[str]:
    """Of the tensors in a result, in order: `0`, `1[2]`, `lengths`."""
    if isinstance(tree, torch.Tensor):
        yield place
    elif isinstance(tree, dict | list | tuple):
        for key, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _places(item, f"{place}[{key}]" if place else f"{key}")


def read_output(
    description: Node, fd: int, truth: Any, native_dtypes: list[torch.dtype] | None, *, device: torch.device
) -> tuple[Any, Unlike | None]:
    """The candidate's output, read only if its structure is the expected one; otherwise why not. Without dtypes any will do."""
    names = (
        _dtypes_of(description)
        if native_dtypes is None
        else iter([str(dtype).removeprefix("torch.") for dtype in native_dtypes])
    )
    expected = _narrowed(describe(truth)[0], names)
    difference = structure_difference(expected, description, where="")
    if difference:
        side, _, place = difference.where.partition("[")
        name = _place_name(place.replace("]", "", 1), changed=side == "mutated")
        return None, Unlike(difference.kind, clean(difference.words, 500), clean(name, 200))
    try:
        return unpack(description, fd, device=device), None
    except BadTree as error:
        return None, Unlike(DifferenceKind.STRUCTURE, clean(f"unreadable: {error}", 500), "the result")


def _dtypes_of(node: Node) -> Iterator[str]:
    match node:
        case TensorNode():
            yield node.dtype
        case ListNode() | TupleNode() | DictNode():
            for item in node.items:
                yield from _dtypes_of(item)


def _narrowed(node: Node, dtypes: Iterator[str]) -> Node:
    """The description of the truth with these dtypes in it, in order, as far as they go."""
    match node:
        case TensorNode():
            return replace(node, dtype=cast(Dtype, next(dtypes, node.dtype)))
        case ListNode() | TupleNode() | DictNode():
            return replace(node, items=tuple([_narrowed(item, dtypes) for item in node.items]))
    return node
